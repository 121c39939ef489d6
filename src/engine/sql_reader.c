#include "engine/sql_reader.h"

#include "engine/sql_lex.h"

#include <string.h>

static bool text_has(const char *sql, size_t len, const char *what)
{
    return memmem(sql, len, what, strlen(what)) != NULL;
}

/* Text that every lexer reads alike. */
static bool text_is_plain(const char *sql, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((sql[i] & 0x80) != 0 || sql[i] == 0 || strchr("\\$#", sql[i]) != NULL)
            return false;
    return !text_has(sql, len, "--") && !text_has(sql, len, "/*") && !text_has(sql, len, "//");
}

static bool token_is_file(const struct sql_lexer *x, const struct sql_token *t)
{
    size_t quotes = t->kind == SQL_TOKEN_QUOTED;
    /* functions' names have one case */
    return sql_token_is_name(t) && t->span.len == 4 + 2 * quotes &&
           memcmp(x->sql + t->span.at + quotes, "file", 4) == 0;
}

/* The name stands for a function only as a name: `file`, not in 'file' or profile. A query
 * parameter of type Identifier can be any name. */
static bool may_call_file(const char *sql, size_t len)
{
    if (text_has(sql, len, "Identifier"))
        return true;
    if (!text_has(sql, len, "file") && !text_has(sql, len, "\\x"))
        return false;
    if (!text_is_plain(sql, len))
        return true;
    struct sql_lexer x = {sql, len, 0, 0};
    struct sql_token t;
    do {
        t = sql_token_next(&x);
        if (token_is_file(&x, &t))
            return true;
    } while (t.kind != SQL_TOKEN_END);
    return false;
}

/* [TABLE] name [. name] and then the end or a clause, or a SELECT in parentheses. */
static bool describes_plainly(struct sql_lexer x)
{
    struct sql_token t = sql_token_next(&x);
    if (sql_token_is(&x, &t, "TABLE"))
        t = sql_token_next(&x);
    if (sql_token_is(&x, &t, "("))
        return true;
    if (!sql_token_is_name(&t) || sql_token_is(&x, &t, "FUNCTION"))
        return false;
    t = sql_token_next(&x);
    while (sql_token_is(&x, &t, ".")) {
        t = sql_token_next(&x);
        if (!sql_token_is_name(&t))
            return false;
        t = sql_token_next(&x);
    }
    return t.kind == SQL_TOKEN_END || sql_token_is(&x, &t, ";") || sql_token_is(&x, &t, "FORMAT") ||
           sql_token_is(&x, &t, "SETTINGS");
}

void sql_reader_facts_read(const char *sql, size_t len, struct sql_reader_facts *ret)
{
    struct sql_lexer x = {sql, len, 0, 0};
    struct sql_token first = sql_token_next(&x);
    struct sql_lexer ahead = x;
    struct sql_token second = sql_token_next(&ahead);
    bool describes = sql_token_is(&x, &first, "DESCRIBE") || sql_token_is(&x, &first, "DESC");
    bool explains = sql_token_is(&x, &first, "EXPLAIN");
    bool shows = sql_token_is(&x, &first, "SHOW");
    ret->selects = sql_token_is(&x, &first, "SELECT") || sql_token_is(&x, &first, "WITH") ||
                   sql_token_is(&x, &first, "FROM") || sql_token_is(&x, &first, "(");
    ret->fetches =
        (describes && !describes_plainly(x)) ||
        (explains && (second.kind != SQL_TOKEN_WORD || sql_token_is(&x, &second, "TABLE")));
    ret->names_things = (describes && !sql_token_is(&x, &second, "(")) ||
                        sql_token_is(&x, &first, "EXISTS") ||
                        (shows && sql_token_is(&x, &second, "CREATE"));
    ret->may_call_file = may_call_file(sql, len);
}
