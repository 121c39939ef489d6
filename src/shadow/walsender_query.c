#include "shadow/walsender_query.h"

#include "base/cursor.h"

#include <string.h>
#include <strings.h>

#define WORD_MAX 64

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_QUOTED, TOKEN_PUNCT };

struct scanner {
    struct cursor c;
    enum token_kind kind;
    char word[WORD_MAX]; /* without quotes */
};

static bool is_space(uint8_t b)
{
    return b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == '\f' || b == '\v';
}

static bool is_word(uint8_t b)
{
    return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || b == '_' ||
           b == '/' || b == '.' || b == '-';
}

static bool at_end(const struct scanner *s)
{
    return s->c.pos >= s->c.len;
}

static uint8_t here(const struct scanner *s)
{
    return s->c.data[s->c.pos];
}

static enum status add(struct scanner *s, size_t *n, uint8_t b, struct error *err)
{
    if (*n + 1 >= WORD_MAX || b == 0)
        return error_set(err, ERR_DATA, "a word of the command is too long or holds a NUL byte");
    s->word[(*n)++] = (char)b;
    return OK;
}

/* "name" or 'name', a doubled quote stands for one. */
static enum status quoted(struct scanner *s, struct error *err)
{
    uint8_t quote = here(s);
    size_t n = 0;
    s->kind = TOKEN_QUOTED;
    for (s->c.pos++; !at_end(s); s->c.pos++) {
        uint8_t b = here(s);
        if (b == quote) {
            if (s->c.pos + 1 >= s->c.len || s->c.data[s->c.pos + 1] != quote) {
                s->c.pos++;
                s->word[n] = '\0';
                return OK;
            }
            s->c.pos++;
        }
        TRY(add(s, &n, b, err));
    }
    return error_set(err, ERR_DATA, "the command ends inside quotes");
}

static enum status next(struct scanner *s, struct error *err)
{
    size_t n = 0;
    while (!at_end(s) && is_space(here(s)))
        s->c.pos++;
    s->word[0] = '\0';
    s->kind = TOKEN_END;
    if (at_end(s))
        return OK;
    if (here(s) == '"' || here(s) == '\'')
        return quoted(s, err);
    s->kind = is_word(here(s)) ? TOKEN_WORD : TOKEN_PUNCT;
    do {
        TRY(add(s, &n, here(s), err));
        s->c.pos++;
    } while (s->kind == TOKEN_WORD && !at_end(s) && is_word(here(s)));
    s->word[n] = '\0';
    return OK;
}

static bool is(const struct scanner *s, const char *word)
{
    return s->kind == TOKEN_WORD && strcasecmp(s->word, word) == 0;
}

static enum status unexpected(const struct scanner *s, struct error *err)
{
    if (s->kind == TOKEN_END)
        return error_set(err, ERR_DATA, "the command ends too early");
    return error_set(err, ERR_DATA, "\"%s\" is not expected in this command", s->word);
}

static enum status take_name(struct scanner *s, char ret[64], struct error *err)
{
    TRY(next(s, err));
    if (s->kind != TOKEN_WORD && s->kind != TOKEN_QUOTED)
        return unexpected(s, err);
    memcpy(ret, s->word, sizeof s->word);
    return OK;
}

static enum status take_number(struct scanner *s, uint32_t *ret, struct error *err)
{
    uint64_t v = 0;
    TRY(next(s, err));
    if (s->kind != TOKEN_WORD)
        return unexpected(s, err);
    for (const char *p = s->word; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || (v = v * 10 + (uint64_t)(*p - '0')) > UINT32_MAX)
            return unexpected(s, err);
    }
    *ret = (uint32_t)v;
    return OK;
}

static enum status take_end(struct scanner *s, struct error *err)
{
    TRY(next(s, err));
    if (s->kind == TOKEN_PUNCT && s->word[0] == ';')
        TRY(next(s, err));
    return s->kind == TOKEN_END ? OK : unexpected(s, err);
}

/* START_REPLICATION [SLOT name] [PHYSICAL] lsn [TIMELINE n] */
static enum status start_replication(struct scanner *s, struct walsender_query *q,
                                     struct error *err)
{
    q->command = WALSENDER_START_PHYSICAL;
    TRY(next(s, err));
    if (is(s, "SLOT")) {
        TRY(take_name(s, q->name, err));
        TRY(next(s, err));
    }
    if (is(s, "PHYSICAL"))
        TRY(next(s, err));
    if (s->kind != TOKEN_WORD || !lsn_parse(s->word, &q->lsn))
        return unexpected(s, err);
    TRY(next(s, err));
    if (is(s, "TIMELINE")) {
        TRY(take_number(s, &q->timeline, err));
        if (q->timeline == 0)
            return error_set(err, ERR_DATA, "timeline 0 does not exist");
        return take_end(s, err);
    }
    if (s->kind == TOKEN_PUNCT && s->word[0] == ';')
        TRY(next(s, err));
    return s->kind == TOKEN_END ? OK : unexpected(s, err);
}

enum status walsender_query_parse(const char *text, size_t len, struct walsender_query *ret,
                                  struct error *err)
{
    struct scanner s = {.c = cursor_of(text, len)};
    struct walsender_query q = {0};
    enum status st;
    TRY(next(&s, err));
    if (is(&s, "IDENTIFY_SYSTEM")) {
        q.command = WALSENDER_IDENTIFY_SYSTEM;
        st = take_end(&s, err);
    } else if (is(&s, "SHOW")) {
        q.command = WALSENDER_SHOW;
        st = take_name(&s, q.name, err);
        if (st == OK)
            st = take_end(&s, err);
    } else if (is(&s, "TIMELINE_HISTORY")) {
        q.command = WALSENDER_TIMELINE_HISTORY;
        st = take_number(&s, &q.timeline, err);
        if (st == OK)
            st = take_end(&s, err);
    } else if (is(&s, "READ_REPLICATION_SLOT")) {
        q.command = WALSENDER_READ_SLOT;
        st = take_name(&s, q.name, err);
        if (st == OK)
            st = take_end(&s, err);
    } else if (is(&s, "START_REPLICATION")) {
        st = start_replication(&s, &q, err);
    } else {
        st = s.kind == TOKEN_END
                 ? error_set(err, ERR_DATA, "the command is empty")
                 : error_set(err, ERR_DATA, "\"%s\" is not a command of this server", s.word);
    }
    TRY(st);
    *ret = q;
    return OK;
}
