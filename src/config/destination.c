/* Destination URLs and the defaults that hang on their kind. */
#include "config/config_assign.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct url_parts {
    char *user, *password, *host, *database;
    int64_t port; /* 0 = not given */
    bool secure;
};

static void url_parts_free(struct url_parts *u)
{
    free(u->user);
    free(u->password);
    free(u->host);
    free(u->database);
}

static int hex_digit(int c)
{
    return isdigit(c) ? c - '0' : isxdigit(c) ? tolower(c) - 'a' + 10 : -1;
}

/* Percent-decoded copy; NULL on a bad escape or NUL. */
static char *url_decode(const char *text, size_t len)
{
    char *out = xmalloc(len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            int hi = i + 2 < len ? hex_digit((unsigned char)text[i + 1]) : -1;
            int lo = hi >= 0 ? hex_digit((unsigned char)text[i + 2]) : -1;
            if (lo < 0 || hi * 16 + lo == 0) {
                free(out);
                return NULL;
            }
            c = hi * 16 + lo;
            i += 2;
        }
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return out;
}

static bool parse_authority(const char *at, size_t len, struct url_parts *u)
{
    const char *amp = memrchr(at, '@', len);
    if (amp != NULL) {
        size_t n = (size_t)(amp - at);
        const char *colon = memchr(at, ':', n);
        size_t user_len = colon != NULL ? (size_t)(colon - at) : n;
        u->user = url_decode(at, user_len);
        u->password = colon != NULL ? url_decode(colon + 1, n - user_len - 1) : xstrdup("");
        if (u->user == NULL || u->password == NULL)
            return false;
        len -= n + 1;
        at = amp + 1;
    }
    const char *end = at + len, *port = NULL;
    if (len > 0 && at[0] == '[') {
        const char *close = memchr(at, ']', len);
        if (close == NULL || (close + 1 < end && close[1] != ':'))
            return false;
        port = close + 1 < end ? close + 2 : NULL;
        u->host = url_decode(at + 1, (size_t)(close - at) - 1);
    } else {
        const char *colon = memchr(at, ':', len);
        port = colon != NULL ? colon + 1 : NULL;
        u->host = url_decode(at, colon != NULL ? (size_t)(colon - at) : len);
    }
    if (port != NULL) {
        if (port == end || end - port > 5)
            return false;
        for (; port < end; port++) {
            if (!isdigit((unsigned char)*port))
                return false;
            u->port = u->port * 10 + (*port - '0');
        }
        if (u->port == 0 || u->port > 65535)
            return false;
    }
    return u->host != NULL && u->host[0] != '\0';
}

/* clickhouse://[user[:password]@]host[:port][/database][?secure=0|1]; *ret_what = what is wrong */
static bool parse_clickhouse_url(const char *url, struct url_parts *u, const char **ret_what)
{
    const char *at = url + strlen("clickhouse://");
    size_t n = strcspn(at, "/?#");
    *ret_what = "must be clickhouse://user:password@host:9000/database";
    if (!parse_authority(at, n, u))
        return false;
    at += n;
    if (*at == '/') {
        n = strcspn(++at, "?#");
        if (n > 0 && (u->database = url_decode(at, n)) == NULL)
            return false;
        at += n;
    }
    if (*at == '?' && strcmp(at, "?secure=1") == 0)
        u->secure = true;
    else if (*at != '\0' && strcmp(at, "?secure=0") != 0) {
        *ret_what = "takes no parameter but secure";
        return false;
    }
    return true;
}

static bool given(const struct config_destination *d, enum option_id id)
{
    return d->origin[id] != ORIGIN_DEFAULT;
}

static enum status clash(const struct config_destination *d, const char *key, struct error *err)
{
    return error_set(err, ERR_CONFIG,
                     "destination.%s: url and %s are both given and differ: give one", d->name,
                     key);
}

/* A part from the URL into a field that a key of its own may have filled. */
static enum status merge_part(const struct config_destination *d, enum option_id id, char **field,
                              char **part, struct error *err)
{
    if (*part == NULL)
        return OK;
    if (given(d, id) && strcmp(*field, *part) != 0)
        return clash(d, option_table[id].key, err);
    free(*field);
    *field = *part;
    *part = NULL;
    return OK;
}

static enum status merge_url(struct config_destination *d, struct url_parts *u, struct error *err)
{
    TRY(merge_part(d, OPT_DEST_HOST, &d->host, &u->host, err));
    TRY(merge_part(d, OPT_DEST_USER, &d->user, &u->user, err));
    TRY(merge_part(d, OPT_DEST_PASSWORD, &d->password, &u->password, err));
    TRY(merge_part(d, OPT_DEST_DATABASE, &d->database, &u->database, err));
    if (u->port != 0) {
        if (given(d, OPT_DEST_PORT) && d->port != u->port)
            return clash(d, "port", err);
        d->port = u->port;
    }
    if (u->secure)
        return error_set(err, ERR_CONFIG,
                         "destination.%s: secure=1 (TLS) is not supported by this version",
                         d->name);
    return OK;
}

static enum status finish_clickhouse(struct config_destination *d, struct error *err)
{
    d->kind = DESTINATION_CLICKHOUSE;
    if (strncmp(d->url, "clickhouse://", 13) == 0) {
        struct url_parts u = {0};
        const char *what;
        enum status st = parse_clickhouse_url(d->url, &u, &what)
                             ? merge_url(d, &u, err)
                             : error_set(err, ERR_CONFIG, "destination.%s.url %s", d->name, what);
        url_parts_free(&u);
        TRY(st);
    }
    for (const char *text = d->user; *text != '\0'; text++) {
        if (iscntrl((unsigned char)*text))
            return error_set(err, ERR_CONFIG, "destination.%s.user holds a control character",
                             d->name);
    }
    if (d->user[0] == '\0')
        return error_set(err, ERR_CONFIG, "destination.%s.user must not be empty", d->name);
    return OK;
}

bool destination_option_applies(enum destination_kind kind, enum option_id id)
{
    static const enum option_id chdb_only[] = {OPT_DEST_FSYNC, OPT_DEST_MEMORY_MAX, OPT_DEST_LISTEN,
                                               OPT_DEST_ENGINE_BIN, OPT_DEST_LIBCHDB};
    static const enum option_id server_only[] = {OPT_DEST_HOST, OPT_DEST_PORT, OPT_DEST_USER,
                                                 OPT_DEST_PASSWORD};
    for (size_t i = 0; i < LENGTH(chdb_only); i++) {
        if (id == chdb_only[i])
            return kind == DESTINATION_CHDB;
    }
    for (size_t i = 0; i < LENGTH(server_only); i++) {
        if (id == server_only[i])
            return kind == DESTINATION_CLICKHOUSE;
    }
    return true;
}

/* A key that means nothing for this kind is an error, not ignored. */
static enum status check_kind_keys(const struct config_destination *d, struct error *err)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        if (o->scope != SCOPE_DESTINATION || !given(d, o->id) ||
            destination_option_applies(d->kind, o->id))
            continue;
        if (d->kind == DESTINATION_CHDB || o->id == OPT_DEST_HOST || o->id == OPT_DEST_PORT ||
            o->id == OPT_DEST_USER || o->id == OPT_DEST_PASSWORD)
            return error_set(err, ERR_CONFIG, "destination.%s.%s is for a server, but url is %s",
                             d->name, o->key, d->url);
        return error_set(err, ERR_CONFIG, "destination.%s.%s is for chdb: only", d->name, o->key);
    }
    return OK;
}

static enum status check_database(const struct config_destination *d, struct error *err)
{
    static const char *const reserved[] = {"default", "system", "information_schema",
                                           "INFORMATION_SCHEMA"};
    if (d->database == NULL || d->kind == DESTINATION_NULL)
        return OK;
    for (size_t i = d->kind == DESTINATION_CHDB ? 0 : 1; i < LENGTH(reserved); i++) {
        if (strcmp(d->database, reserved[i]) == 0)
            return error_set(err, ERR_CONFIG,
                             "destination.%s: \"%s\" cannot be the target database: set "
                             "destination.%s.database to another name",
                             d->name, d->database, d->name);
    }
    return OK;
}

static void set_chdb_path(const struct config *c, struct config_destination *d)
{
    const char *path = d->url + strlen("chdb:");
    char cwd[PATH_MAX];
    free(d->path);
    if (path[0] == '\0')
        d->path = xasprintf("%s/chdb", c->state_dir);
    else if (path[0] == '/' || getcwd(cwd, sizeof cwd) == NULL)
        d->path = xstrdup(path);
    else
        d->path = xasprintf("%s/%s", cwd, path);
}

enum status destination_finish(struct config *c, struct config_destination *d, struct error *err)
{
    if (strncmp(d->url, "clickhouse://", 13) == 0 ||
        (given(d, OPT_DEST_HOST) && !given(d, OPT_DEST_URL))) {
        TRY(finish_clickhouse(d, err));
    } else if (strncmp(d->url, "chdb:", 5) == 0) {
        d->kind = DESTINATION_CHDB;
        set_chdb_path(c, d);
    } else if (strcmp(d->url, "null:") == 0) {
        d->kind = DESTINATION_NULL;
    } else {
        return error_set(err, ERR_CONFIG,
                         "destination.%s.url: %.*s is not supported: must be chdb:[PATH], "
                         "clickhouse://user:password@host:9000/database or null:",
                         d->name, (int)MIN(strcspn(d->url, ":/@"), 20u),
                         d->url); /* no password in it */
    }
    TRY(check_kind_keys(d, err));
    bool server = d->kind == DESTINATION_CLICKHOUSE;
    if (!given(d, OPT_DEST_COMPRESSION))
        d->compression = server ? COMPRESSION_LZ4 : COMPRESSION_NONE;
    if (!given(d, OPT_DEST_FLUSH_TIMEOUT))
        d->flush_timeout_ms = server ? 1000 : 40;
    if (d->database == NULL && c->source.database != NULL)
        d->database = xstrdup(c->source.database);
    return check_database(d, err);
}
