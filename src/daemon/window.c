#include "daemon/window.h"
#include "pg/change.h"
#include "pg/standby_record.h"
#include "pg/storage_record.h"
#include "pg/xact_record.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <uthash.h>

struct relation_facts {
    Oid oid;
    bool truncated, rewritten, old_xact;
    UT_hash_handle hh;
};

struct file_facts {
    struct rel_file_locator locator;
    bool is_new, is_gone;
    UT_hash_handle hh;
};

struct truncate_of {
    TransactionId xid;
    Oid oid;
};

struct window_facts {
    unsigned major;
    Oid database;
    XLogRecPtr start_lsn;
    struct file_facts *files;
    _Atomic TransactionId next_xid;
    struct relation_facts *relations;
    bool shadow_ready;
    TransactionId missing_up_to, oldest_running;
    struct truncate_of *truncates; /* seen, whatever became of them */
    size_t ntruncates, cap;
};

struct window_facts *window_facts_new(unsigned major, Oid database)
{
    struct window_facts *f = xcalloc(1, sizeof *f);
    f->major = major;
    f->database = database;
    return f;
}

void window_facts_free(struct window_facts *f)
{
    struct relation_facts *r, *next;
    struct file_facts *file, *next_file;
    if (f == NULL)
        return;
    HASH_ITER (hh, f->files, file, next_file) {
        HASH_DEL(f->files, file);
        free(file);
    }
    HASH_ITER (hh, f->relations, r, next) {
        HASH_DEL(f->relations, r);
        free(r);
    }
    free(f->truncates);
    free(f);
}

void window_facts_set_start(struct window_facts *f, XLogRecPtr start_lsn)
{
    f->start_lsn = start_lsn;
}

void window_facts_set_next_xid(struct window_facts *f, TransactionId next_xid)
{
    atomic_store(&f->next_xid, next_xid);
}

static const struct relation_facts *find(const struct window_facts *f, Oid oid)
{
    struct relation_facts *r;
    HASH_FIND(hh, f->relations, &oid, sizeof oid, r);
    return r;
}

static struct relation_facts *get(struct window_facts *f, Oid oid)
{
    struct relation_facts *r = (struct relation_facts *)(uintptr_t)find(f, oid);
    if (r == NULL) {
        r = xcalloc(1, sizeof *r);
        r->oid = oid;
        HASH_ADD(hh, f->relations, oid, sizeof r->oid, r);
    }
    return r;
}

static enum status note_truncate(struct window_facts *f, const struct wal_record *record,
                                 struct error *err)
{
    struct heap_truncate t;
    TRY(heap_truncate_parse(record, &t, err));
    if (t.db_oid != f->database)
        return OK;
    if (f->ntruncates + t.nrelids > f->cap) {
        f->cap = 2 * (f->ntruncates + t.nrelids);
        f->truncates = xrealloc(f->truncates, f->cap * sizeof *f->truncates);
    }
    for (uint32_t i = 0; i < t.nrelids; i++) {
        Oid oid;
        memcpy(&oid, t.relids + (size_t)i * 4, 4);
        f->truncates[f->ntruncates++] = (struct truncate_of){record->xid, oid};
    }
    return OK;
}

static bool is_member(const struct xact_record *x, TransactionId xid)
{
    if (xid == x->xid)
        return true;
    for (uint32_t i = 0; i < x->subxacts.count; i++)
        if (xid_list_get(&x->subxacts, i) == xid)
            return true;
    return false;
}

static bool truncates(const struct window_facts *f, const struct xact_record *x, Oid oid)
{
    for (size_t i = 0; i < f->ntruncates; i++)
        if (f->truncates[i].oid == oid && is_member(x, f->truncates[i].xid))
            return true;
    return false;
}

static const struct file_facts *file_find(const struct window_facts *f,
                                          struct rel_file_locator locator)
{
    struct file_facts *file;
    HASH_FIND(hh, f->files, &locator, sizeof locator, file);
    return file;
}

static struct file_facts *file_get(struct window_facts *f, struct rel_file_locator locator)
{
    struct file_facts *file = (struct file_facts *)(uintptr_t)file_find(f, locator);
    if (file == NULL) {
        file = xcalloc(1, sizeof *file);
        file->locator = locator;
        HASH_ADD(hh, f->files, locator, sizeof file->locator, file);
    }
    return file;
}

static void note_commit(struct window_facts *f, const struct xact_record *x)
{
    TransactionId next_xid = atomic_load(&f->next_xid);
    for (uint32_t i = 0; i < x->dropped.count; i++)
        file_get(f, locator_list_get(&x->dropped, i))->is_gone = true;
    for (uint32_t i = 0; i < x->invals.count; i++) {
        struct inval_message m = inval_list_get(&x->invals, i);
        if (m.kind != INVAL_RELCACHE || m.db_oid != f->database || m.rel_oid < FirstNormalObjectId)
            continue;
        struct relation_facts *r = get(f, m.rel_oid);
        if (truncates(f, x, m.rel_oid))
            r->truncated = true;
        else if (x->dropped.count > 0)
            r->rewritten = true;
        if (next_xid == 0 || xid_precedes(x->xid, next_xid))
            r->old_xact = true;
    }
}

static enum status note_file(struct window_facts *f, const struct wal_record *record,
                             struct error *err)
{
    struct smgr_record s;
    TRY(smgr_record_parse(record, &s, err));
    if (!s.is_truncate && s.fork == MAIN_FORKNUM && s.locator.db_oid == f->database)
        file_get(f, s.locator)->is_new = true;
    return OK;
}

/* How a standby finds its first snapshot, as ProcArrayApplyRecoveryInfo of
 * storage/ipc/procarray.c does (the same in 15 to 18). */
static enum status note_running(struct window_facts *f, const struct wal_record *record,
                                struct error *err)
{
    struct running_xacts running;
    if (standby_record_op(record) != XLOG_RUNNING_XACTS)
        return OK;
    TRY(running_xacts_parse(record, &running, err));
    f->oldest_running = running.oldest_running_xid;
    if (!running.subxid_overflow)
        f->shadow_ready = true;
    else if (f->missing_up_to == InvalidTransactionId) /* the first: it tells of none later */
        f->missing_up_to = running.next_xid - 1;
    else if (xid_precedes(f->missing_up_to, running.oldest_running_xid))
        f->shadow_ready = true;
    return OK;
}

enum status window_facts_record(struct window_facts *f, const struct wal_record *record,
                                struct error *err)
{
    struct xact_record x;
    if (heap_record_is_truncate(record))
        return note_truncate(f, record, err);
    if (record->start < f->start_lsn || record->body_skipped)
        return OK;
    if (record->rmid == RM_SMGR_ID)
        return note_file(f, record, err);
    if (record->rmid == RM_STANDBY_ID)
        return note_running(f, record, err);
    if (record->rmid != RM_XACT_ID)
        return OK;
    TRY(xact_record_parse(record, f->major, &x, err));
    if (x.kind == XACT_COMMIT || x.kind == XACT_COMMIT_PREPARED)
        note_commit(f, &x);
    return OK;
}

bool window_facts_shadow_ready(const struct window_facts *f)
{
    return f->shadow_ready;
}

TransactionId window_facts_oldest_running(const struct window_facts *f)
{
    return f->oldest_running;
}

bool window_facts_file_is_new(const struct window_facts *f, struct rel_file_locator locator)
{
    const struct file_facts *file = file_find(f, locator);
    return file != NULL && file->is_new;
}

bool window_facts_file_is_gone(const struct window_facts *f, struct rel_file_locator locator)
{
    const struct file_facts *file = file_find(f, locator);
    return file != NULL && file->is_gone;
}

bool window_facts_truncated(const struct window_facts *f, Oid oid)
{
    const struct relation_facts *r = find(f, oid);
    return r != NULL && r->truncated;
}

bool window_facts_rewritten(const struct window_facts *f, Oid oid)
{
    const struct relation_facts *r = find(f, oid);
    return r != NULL && r->rewritten;
}

bool window_facts_old_xact(const struct window_facts *f, Oid oid)
{
    const struct relation_facts *r = find(f, oid);
    return r != NULL && r->old_xact;
}
