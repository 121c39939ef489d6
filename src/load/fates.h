/* What became of transactions: two bits an xid, in chunks made on demand (as pg_xact does).
 * Readers take no lock; writers may be several. */
#pragma once
#include "pg/visibility.h"

struct fates;
struct fates *fates_new(void);
void fates_free(struct fates *f);

/* The first fate set stays: a transaction does not change its mind. */
void fates_set(struct fates *f, TransactionId xid, enum xid_fate fate);
enum xid_fate fates_get(const struct fates *f, TransactionId xid);
