/* Errors: a status returned, a struct filled. The status answers the caller's one question. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum status {
    OK = 0,
    ERR_RETRY,     /* network, server or another process: the same call may succeed later */
    ERR_DATA,      /* malformed or unexpected input: the same bytes will fail again */
    ERR_CONFIG,    /* the operator must change something */
    ERR_BUG,       /* an invariant of ours does not hold */
    ERR_CANCELLED, /* asked to stop */
};

struct error {
    enum status kind;
    int sys_errno;    /* 0 = none */
    int ch_code;      /* ClickHouse exception code, 0 = none */
    char sqlstate[6]; /* PostgreSQL SQLSTATE, "" = none */
    uint64_t lsn;     /* where in the WAL, 0 = not known */
    char message[600];
};

#define CHECKED __attribute__((warn_unused_result))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Forwards a failure to the caller. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum status try_ = (expr);                                                                 \
        if (__builtin_expect(try_ != OK, 0))                                                       \
            return try_;                                                                           \
    } while (0)

/* Fills err (may be NULL) and returns kind, so that `return error_set(err, ERR_DATA, "…")` works.
 */
enum status error_set(struct error *err, enum status kind, const char *fmt, ...) PRINTF(3, 4);

/* As error_set, appends ": <strerror(errno)>" and keeps errno. */
enum status error_sys(struct error *err, enum status kind, const char *fmt, ...) PRINTF(3, 4);

/* As error_set, and names the LSN in the text and in err->lsn. */
enum status error_lsn(struct error *err, enum status kind, uint64_t lsn, const char *fmt, ...)
    PRINTF(4, 5);

/* Puts "<text>: " before the message that is there; returns err->kind (ERR_BUG for a NULL err,
 * whose kind is not known). */
enum status error_prefix(struct error *err, const char *fmt, ...) PRINTF(2, 3);

/* Out of memory for a small fixed amount is not survived: prints and aborts. */
void *xmalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *fmt, ...) PRINTF(1, 2) __attribute__((malloc, returns_nonnull));

/* CHECK stays in release builds: state of ours is corrupt, going on could write wrong data. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            check_failed(#cond, __FILE__, __LINE__);                                               \
    } while (0)
void check_failed(const char *what, const char *file, int line) __attribute__((noreturn));

/* Cleanup attribute for malloc'd locals: `CLEANUP_FREE char *s = …`. */
static inline void cleanup_free(void *p)
{
    __builtin_free(*(void **)p);
}
static inline void cleanup_fd(const int *fd)
{
    extern int close(int);
    if (*fd >= 0)
        close(*fd);
}
#define CLEANUP_FREE __attribute__((cleanup(cleanup_free)))
#define CLEANUP_FD __attribute__((cleanup(cleanup_fd)))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
