/* Boundaries that were passed although the catalog could not be read (notes C5). From such a commit
 * on the relations it changed are not known as they are, until the catalog is read again: rows that
 * commit in between cannot be decoded, and the tables are copied again. Plain data: the history
 * guards it. */
#pragma once
#include "base/buf.h"
#include "base/lsn.h"
#include "pg/pg.h"

#include <stdbool.h>

struct unseen_span {
    XLogRecPtr from;  /* the boundary: end of its commit */
    XLogRecPtr until; /* the catalog was read here; UINT64_MAX = not yet */
    bool done;        /* and what came of it for tables and targets is durable */
    bool all;  /* any relation may have another name: to be compared, its rows are as before */
    Oid *oids; /* changed in any way; tables or not, known before or not */
    size_t n;
};
struct unseen {
    struct unseen_span *spans; /* by from, ascending */
    size_t n;
};

void unseen_add(struct unseen *u, XLogRecPtr from, const Oid *oids, size_t n, bool all);
/* The catalog was read at lsn: what was not known until then is. */
void unseen_end(struct unseen *u, XLogRecPtr lsn);
void unseen_free(struct unseen *u);

/* A commit at lsn finds the relation changed in a way that is not known. */
bool unseen_has(const struct unseen *u, Oid oid, XLogRecPtr lsn);
bool unseen_any(const struct unseen *u, XLogRecPtr lsn);
/* The relations of spans that begin (end: that end) at lsn, appended to oids unless it is NULL;
 * *ret_all, unless NULL, is set if one of them concerns all. False: there is none. */
bool unseen_at(const struct unseen *u, bool end, XLogRecPtr lsn, struct buf *oids, bool *ret_all);
/* What the spans that end at lsn mean for tables and targets is durable. False: it was before. */
bool unseen_done(struct unseen *u, XLogRecPtr lsn);
/* The first end behind lsn that is also behind `from` or not done; UINT64_MAX if there is none. */
XLogRecPtr unseen_next_end(const struct unseen *u, XLogRecPtr lsn, XLogRecPtr from);
/* The first time that the relation was changed unseen before its newest end; 0: never. */
XLogRecPtr unseen_last_from(const struct unseen *u, Oid oid, XLogRecPtr *ret_until);
