#include "catalog/history.h"
#include "base/fault.h"
#include "base/log.h"
#include "catalog/catalog_log.h"
#include "catalog/unseen.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct relation {
    Oid oid;
    struct rel_desc **versions; /* by valid_from, ascending */
    size_t n, cap;
    enum history_state state;
    char *reason; /* NULL if followed */
    XLogRecPtr resynced;
    UT_hash_handle hh;
};

struct file_entry {
    struct rel_file_locator locator;
    Oid oid; /* the relation whose heap or TOAST file this is */
    bool toast;
    UT_hash_handle hh;
};

struct history {
    pthread_rwlock_t lock; /* guards the tables, captured and unseen */
    struct relation *relations;
    struct file_entry *files;
    XLogRecPtr captured;
    struct unseen unseen;
    atomic_ulong generation;
    pthread_mutex_t append_lock; /* serialises writers of the log file */
    struct catalog_log *log;
};

static struct relation *relation_get(struct history *h, Oid oid)
{
    struct relation *r;
    HASH_FIND(hh, h->relations, &oid, sizeof oid, r);
    if (r == NULL) {
        r = xcalloc(1, sizeof *r);
        r->oid = oid;
        HASH_ADD(hh, h->relations, oid, sizeof r->oid, r);
    }
    return r;
}

static void file_add(struct history *h, struct rel_file_locator locator, Oid oid, bool toast)
{
    struct file_entry *f;
    if (locator.rel_number == 0)
        return;
    HASH_FIND(hh, h->files, &locator, sizeof locator, f);
    if (f == NULL) {
        f = xcalloc(1, sizeof *f);
        f->locator = locator;
        HASH_ADD(hh, h->files, locator, sizeof f->locator, f);
    }
    f->oid = oid; /* a number used again belongs to its newest owner */
    f->toast = toast;
}

static void version_add(struct history *h, struct rel_desc *d)
{
    if (d->relkind == 't')
        return; /* TOAST files are known by their owner */
    struct relation *r = relation_get(h, d->oid);
    size_t at = r->n;
    while (at > 0 && r->versions[at - 1]->valid_from > d->valid_from)
        at--;
    if (at > 0 && r->versions[at - 1]->valid_from == d->valid_from) {
        rel_desc_unref(r->versions[at - 1]); /* the same boundary captured once more */
        r->versions[at - 1] = rel_desc_ref(d);
    } else {
        if (r->n == r->cap) {
            r->cap = r->cap == 0 ? 2 : 2 * r->cap;
            r->versions = xrealloc(r->versions, r->cap * sizeof(struct rel_desc *));
        }
        memmove(r->versions + at + 1, r->versions + at, (r->n - at) * sizeof(struct rel_desc *));
        r->versions[at] = rel_desc_ref(d);
        r->n++;
    }
    file_add(h, d->locator, d->oid, false);
    file_add(h, d->toast_locator, d->oid, true);
}

static void state_set(struct relation *r, enum history_state state, const char *reason)
{
    free(r->reason);
    r->reason = reason == NULL ? NULL : xstrdup(reason);
    r->state = state;
}

/* Descriptors count once the entry behind them says through where: a kill may have come between. */
struct loading {
    struct history *h;
    struct rel_desc **pending;
    size_t n;
};

static void pending_end(struct loading *l, XLogRecPtr valid_from, bool any)
{
    for (size_t i = 0; i < l->n; i++) {
        if (any || l->pending[i]->valid_from == valid_from)
            version_add(l->h, l->pending[i]);
        rel_desc_unref(l->pending[i]);
    }
    free(l->pending);
    l->pending = NULL;
    l->n = 0;
}

static enum status load_entry(void *ctx, const struct catalog_log_entry *entry, struct error *err)
{
    struct loading *l = ctx;
    struct history *h = l->h;
    (void)err;
    switch (entry->kind) {
    case CATALOG_LOG_DESC:
        l->pending = xrealloc(l->pending, (l->n + 1) * sizeof(struct rel_desc *));
        l->pending[l->n++] = rel_desc_ref(entry->desc);
        break;
    case CATALOG_LOG_CAPTURED:
        pending_end(l, 0, true);
        h->captured = MAX(h->captured, entry->lsn);
        break;
    case CATALOG_LOG_UNSEEN:
        pending_end(l, UINT64_MAX, false); /* of a capture here that was not finished */
        unseen_add(&h->unseen, entry->lsn, entry->oids, entry->n, entry->all);
        h->captured = MAX(h->captured, entry->lsn);
        break;
    case CATALOG_LOG_SEEN:
        pending_end(l, entry->lsn, false); /* others: of a look before that was not finished */
        unseen_end(&h->unseen, entry->lsn);
        h->captured = MAX(h->captured, entry->lsn);
        break;
    case CATALOG_LOG_DONE:
        unseen_done(&h->unseen, entry->lsn);
        break;
    case CATALOG_LOG_STOP:
        state_set(relation_get(h, entry->oid), HISTORY_STOPPED, entry->reason);
        break;
    case CATALOG_LOG_RESYNC:
        state_set(relation_get(h, entry->oid), HISTORY_RESYNC, entry->reason);
        break;
    case CATALOG_LOG_RESYNCED: {
        struct relation *r = relation_get(h, entry->oid);
        state_set(r, HISTORY_FOLLOWED, NULL);
        r->resynced = MAX(r->resynced, entry->lsn);
        break;
    }
    }
    return OK;
}

enum status history_open(const char *path, struct history **ret, struct error *err)
{
    struct history *h = xcalloc(1, sizeof *h);
    pthread_rwlock_init(&h->lock, NULL);
    pthread_mutex_init(&h->append_lock, NULL);
    struct loading loading = {.h = h};
    enum status st = catalog_log_open(path, load_entry, &loading, &h->log, err);
    pending_end(&loading, UINT64_MAX, false);
    if (st != OK) {
        history_free(h);
        return st;
    }
    *ret = h;
    return OK;
}

void history_free(struct history *h)
{
    struct relation *r, *r_next;
    struct file_entry *f, *f_next;
    if (h == NULL)
        return;
    HASH_ITER (hh, h->relations, r, r_next) {
        HASH_DEL(h->relations, r);
        for (size_t i = 0; i < r->n; i++)
            rel_desc_unref(r->versions[i]);
        free(r->versions);
        free(r->reason);
        free(r);
    }
    HASH_ITER (hh, h->files, f, f_next) {
        HASH_DEL(h->files, f);
        free(f);
    }
    unseen_free(&h->unseen);
    catalog_log_close(h->log);
    pthread_rwlock_destroy(&h->lock);
    pthread_mutex_destroy(&h->append_lock);
    free(h);
}

static enum status append(struct history *h, struct rel_desc *const *descs, size_t n,
                          XLogRecPtr captured_through, bool seen, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&h->append_lock);
    for (size_t i = 0; i < n && st == OK; i++)
        st = catalog_log_put_desc(h->log, descs[i], err);
    if (st == OK)
        st = seen ? catalog_log_put_seen(h->log, captured_through, err)
                  : catalog_log_put_captured(h->log, captured_through, err);
    FAULT_POINT("catalog-log-before-sync");
    if (st == OK)
        st = catalog_log_sync(h->log, err);
    if (st == OK) {
        pthread_rwlock_wrlock(&h->lock);
        for (size_t i = 0; i < n; i++)
            version_add(h, descs[i]);
        if (seen)
            unseen_end(&h->unseen, captured_through);
        h->captured = MAX(h->captured, captured_through);
        pthread_rwlock_unlock(&h->lock);
        atomic_fetch_add(&h->generation, 1);
    }
    pthread_mutex_unlock(&h->append_lock);
    return st;
}

enum status history_append(struct history *h, struct rel_desc *const *descs, size_t n,
                           XLogRecPtr captured_through, struct error *err)
{
    return append(h, descs, n, captured_through, false, err);
}

enum status history_append_seen(struct history *h, struct rel_desc *const *descs, size_t n,
                                XLogRecPtr lsn, struct error *err)
{
    return append(h, descs, n, lsn, true, err);
}

enum status history_pass_unseen(struct history *h, XLogRecPtr lsn, const Oid *oids, size_t n,
                                bool all, struct error *err)
{
    pthread_mutex_lock(&h->append_lock);
    enum status st = catalog_log_put_unseen(h->log, lsn, oids, n, all, err);
    if (st == OK)
        st = catalog_log_sync(h->log, err);
    if (st == OK) {
        pthread_rwlock_wrlock(&h->lock);
        unseen_add(&h->unseen, lsn, oids, n, all);
        h->captured = MAX(h->captured, lsn);
        pthread_rwlock_unlock(&h->lock);
        atomic_fetch_add(&h->generation, 1);
    }
    pthread_mutex_unlock(&h->append_lock);
    return st;
}

bool history_is_unseen(struct history *h, Oid oid, XLogRecPtr lsn)
{
    pthread_rwlock_rdlock(&h->lock);
    bool unseen = unseen_has(&h->unseen, oid, lsn);
    pthread_rwlock_unlock(&h->lock);
    return unseen;
}

bool history_any_unseen(struct history *h, XLogRecPtr lsn)
{
    pthread_rwlock_rdlock(&h->lock);
    bool any = unseen_any(&h->unseen, lsn);
    pthread_rwlock_unlock(&h->lock);
    return any;
}

bool history_unseen_from(struct history *h, XLogRecPtr lsn, struct buf *oids, bool *ret_all)
{
    pthread_rwlock_rdlock(&h->lock);
    bool any = unseen_at(&h->unseen, false, lsn, oids, ret_all);
    pthread_rwlock_unlock(&h->lock);
    return any;
}

bool history_unseen_until(struct history *h, XLogRecPtr lsn, struct buf *oids, bool *ret_all)
{
    pthread_rwlock_rdlock(&h->lock);
    bool any = unseen_at(&h->unseen, true, lsn, oids, ret_all);
    pthread_rwlock_unlock(&h->lock);
    return any;
}

XLogRecPtr history_next_seen(struct history *h, XLogRecPtr lsn, XLogRecPtr from)
{
    pthread_rwlock_rdlock(&h->lock);
    XLogRecPtr next = unseen_next_end(&h->unseen, lsn, from);
    pthread_rwlock_unlock(&h->lock);
    return next;
}

enum status history_seen_done(struct history *h, XLogRecPtr lsn, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&h->append_lock);
    pthread_rwlock_wrlock(&h->lock);
    bool news = unseen_done(&h->unseen, lsn);
    pthread_rwlock_unlock(&h->lock);
    if (news)
        st = catalog_log_put_done(h->log, lsn, err);
    if (news && st == OK)
        st = catalog_log_sync(h->log, err);
    pthread_mutex_unlock(&h->append_lock);
    return st;
}

XLogRecPtr history_captured_lsn(struct history *h)
{
    pthread_rwlock_rdlock(&h->lock);
    XLogRecPtr lsn = h->captured;
    pthread_rwlock_unlock(&h->lock);
    return lsn;
}

static bool desc_has_file(const struct rel_desc *d, struct rel_file_locator locator)
{
    return rel_file_locator_equal(d->locator, locator) ||
           rel_file_locator_equal(d->toast_locator, locator);
}

struct rel_desc *history_by_locator(struct history *h, struct rel_file_locator locator,
                                    XLogRecPtr lsn, bool *ret_toast)
{
    struct file_entry *f;
    struct rel_desc *found = NULL;
    pthread_rwlock_rdlock(&h->lock);
    HASH_FIND(hh, h->files, &locator, sizeof locator, f);
    if (f != NULL) {
        struct relation *r = relation_get(h, f->oid); /* exists: no write under the read lock */
        for (size_t i = 0; i < r->n; i++) {
            struct rel_desc *d = r->versions[i];
            if (d->dropped || !desc_has_file(d, locator))
                continue;
            if (found == NULL || d->valid_from <= lsn)
                found = d;
        }
        *ret_toast = f->toast;
    }
    if (found != NULL)
        rel_desc_ref(found);
    pthread_rwlock_unlock(&h->lock);
    return found;
}

static struct rel_desc *version_at(const struct relation *r, XLogRecPtr lsn)
{
    struct rel_desc *found = NULL;
    for (size_t i = 0; i < r->n && r->versions[i]->valid_from <= lsn; i++)
        found = r->versions[i];
    return found == NULL || found->dropped ? NULL : rel_desc_ref(found);
}

struct rel_desc *history_by_oid(struct history *h, Oid oid, XLogRecPtr lsn)
{
    struct relation *r;
    pthread_rwlock_rdlock(&h->lock);
    HASH_FIND(hh, h->relations, &oid, sizeof oid, r);
    struct rel_desc *d = r == NULL ? NULL : version_at(r, lsn);
    pthread_rwlock_unlock(&h->lock);
    return d;
}

XLogRecPtr history_unseen_file_lsn(struct history *h, Oid oid)
{
    struct relation *r;
    XLogRecPtr until, from;
    pthread_rwlock_rdlock(&h->lock);
    from = unseen_last_from(&h->unseen, oid, &until);
    HASH_FIND(hh, h->relations, &oid, sizeof oid, r);
    struct rel_desc *before = r == NULL || from == 0 ? NULL : version_at(r, from);
    struct rel_desc *now = before == NULL ? NULL : version_at(r, until);
    pthread_rwlock_unlock(&h->lock);
    bool moved = now != NULL && !rel_file_locator_equal(before->toast_locator, now->toast_locator);
    rel_desc_unref(before);
    rel_desc_unref(now);
    return moved ? from : 0;
}

bool history_begins_after(struct history *h, Oid oid, XLogRecPtr lsn)
{
    struct relation *r;
    pthread_rwlock_rdlock(&h->lock);
    HASH_FIND(hh, h->relations, &oid, sizeof oid, r);
    bool after = r != NULL && r->n > 0 && r->versions[0]->valid_from > lsn;
    pthread_rwlock_unlock(&h->lock);
    return after;
}

void history_all(struct history *h, XLogRecPtr lsn, struct rel_desc ***ret, size_t *ret_n)
{
    struct relation *r, *next;
    size_t n = 0;
    pthread_rwlock_rdlock(&h->lock);
    struct rel_desc **all = xmalloc(HASH_COUNT(h->relations) * sizeof(struct rel_desc *));
    HASH_ITER (hh, h->relations, r, next) {
        struct rel_desc *d = version_at(r, lsn);
        if (d != NULL)
            all[n++] = d;
    }
    pthread_rwlock_unlock(&h->lock);
    *ret = all;
    *ret_n = n;
}

/* Appends under the append lock. */
static enum status state_put(struct history *h, enum catalog_log_kind kind, Oid oid, XLogRecPtr lsn,
                             const char *reason, struct error *err)
{
    TRY(catalog_log_put_state(h->log, kind, oid, lsn, reason, err));
    TRY(catalog_log_sync(h->log, err));
    atomic_fetch_add(&h->generation, 1);
    return OK;
}

static enum status state_change(struct history *h, Oid oid, enum history_state state,
                                XLogRecPtr lsn, const char *reason, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&h->append_lock);
    pthread_rwlock_wrlock(&h->lock);
    struct relation *r = relation_get(h, oid);
    bool kept = state == HISTORY_STOPPED && r->state == HISTORY_STOPPED;
    if (!kept)
        state_set(r, state, reason);
    pthread_rwlock_unlock(&h->lock);
    if (!kept)
        st = state_put(h, state == HISTORY_STOPPED ? CATALOG_LOG_STOP : CATALOG_LOG_RESYNC, oid,
                       lsn, reason, err);
    pthread_mutex_unlock(&h->append_lock);
    return st;
}

enum status history_stop(struct history *h, Oid oid, XLogRecPtr lsn, const char *reason,
                         struct error *err)
{
    return state_change(h, oid, HISTORY_STOPPED, lsn, reason, err);
}

enum status history_resync(struct history *h, Oid oid, XLogRecPtr lsn, const char *reason,
                           struct error *err)
{
    return state_change(h, oid, HISTORY_RESYNC, lsn, reason, err);
}

enum status history_resynced(struct history *h, Oid oid, XLogRecPtr lsn, struct error *err)
{
    pthread_mutex_lock(&h->append_lock);
    enum status st = state_put(h, CATALOG_LOG_RESYNCED, oid, lsn, "", err);
    if (st == OK) {
        pthread_rwlock_wrlock(&h->lock);
        struct relation *r = relation_get(h, oid);
        state_set(r, HISTORY_FOLLOWED, NULL);
        r->resynced = MAX(r->resynced, lsn);
        pthread_rwlock_unlock(&h->lock);
    }
    pthread_mutex_unlock(&h->append_lock);
    return st;
}

enum history_state history_state(struct history *h, Oid oid, char *buf, size_t cap)
{
    struct relation *r;
    pthread_rwlock_rdlock(&h->lock);
    HASH_FIND(hh, h->relations, &oid, sizeof oid, r);
    enum history_state state = r == NULL ? HISTORY_FOLLOWED : r->state;
    if (cap > 0)
        snprintf(buf, cap, "%s", r == NULL || r->reason == NULL ? "" : r->reason);
    pthread_rwlock_unlock(&h->lock);
    return state;
}

XLogRecPtr history_resynced_lsn(struct history *h, Oid oid)
{
    struct relation *r;
    pthread_rwlock_rdlock(&h->lock);
    HASH_FIND(hh, h->relations, &oid, sizeof oid, r);
    XLogRecPtr lsn = r == NULL ? 0 : r->resynced;
    pthread_rwlock_unlock(&h->lock);
    return lsn;
}

uint64_t history_generation(struct history *h)
{
    return atomic_load(&h->generation);
}
