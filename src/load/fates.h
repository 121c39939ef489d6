/* What became of transactions (two bits an xid, as in pg_xact) and who updates in multixacts, in
 * chunks made on demand. Readers take no lock; writers may be several. */
#pragma once
#include "pg/visibility.h"

struct fates;
struct fates *fates_new(void);
void fates_free(struct fates *f);

/* What somebody was told when asking. The first fate stays: a transaction does not change its mind.
 */
void fates_set(struct fates *f, TransactionId xid, enum xid_fate fate);
enum xid_fate fates_get(const struct fates *f, TransactionId xid);
/* The WAL has been read up to its end. */
void fates_end_set(struct fates *f, TransactionId xid, bool committed);
bool fates_has_ended(const struct fates *f, TransactionId xid);

/* fact: any but UPDATER_UNKNOWN; xid: of UPDATER_XID. The first stays. */
void fates_updater_set(struct fates *f, MultiXactId multi, enum updater_fact fact,
                       TransactionId xid);
enum updater_fact fates_updater_get(const struct fates *f, MultiXactId multi,
                                    TransactionId *ret_xid);

/* What a tuple waits for is known. */
bool fates_settled(const struct fates *f, struct awaited awaited);
