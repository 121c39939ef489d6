/* What goes to the shadow and what becomes a no-op (notes A1, C1, C3, C4, C8 to C11).
 * Owned by the thread that owns the filter. */
#pragma once
#include "pg/wal_record.h"
#include "wal/catalog_filenodes.h"

enum wal_route {
    WAL_FORWARD,         /* the shadow sees it as it is */
    WAL_NOOP_USER,       /* a user relation of our database (large objects too) */
    WAL_NOOP_DATABASE,   /* another database */
    WAL_NOOP_CONFLICT,   /* lock and page reuse records: only recovery conflicts */
    WAL_NOOP_TABLESPACE, /* tablespace directories of the source */
    WAL_NOOP_CUSTOM,     /* resource managers of extensions */
    WAL_NOOP_MESSAGE,    /* logical messages, the source's own no-ops */
};
#define WAL_ROUTES (WAL_NOOP_MESSAGE + 1)
const char *wal_route_name(enum wal_route route);

struct wal_classifier;

/* database 0: every database is taken as ours (offline use). filenodes is the caller's, outlives
 * the classifier, and grows by what C1 finds. */
struct wal_classifier *wal_classifier_new(unsigned major, Oid database,
                                          struct catalog_filenodes *filenodes);
void wal_classifier_free(struct wal_classifier *c);

/* Every record in WAL order. Locks, creations and outcomes of transactions are remembered as C1
 * wants. ERR_DATA for a record whose resource manager or content is not known. */
enum status wal_classify(struct wal_classifier *c, const struct wal_record *record,
                         enum wal_route *ret, struct error *err) CHECKED;

/* The route of a long record from its header part, when the rest does not matter to it; *ret_needed
 * says whether whoever reads the record may want its body. Remembers nothing. */
bool wal_classify_head(const struct wal_classifier *c, const struct wal_record *head,
                       enum wal_route *ret, bool *ret_needed);

/* A record whose body was skipped: remembers what its header part tells. */
void wal_classify_skipped(struct wal_classifier *c, const struct wal_record *record);

/* Transactions that hold a catalog lock now. */
size_t wal_classifier_open(const struct wal_classifier *c);
