/* The end of the initial load: rows that wait for transactions older than it, over restarts. */
#include "base/fault.h"
#include "base/log.h"
#include "daemon/bootstrap.h"

#include <stdlib.h>
#include <unistd.h>

/* What was submitted is durable, rows and chunks. */
static enum status load_rows_durable(void *ctx, bool *ret_durable, struct error *err)
{
    struct daemon *d = ctx;
    *ret_durable = false;
    for (size_t i = 0; i < d->config->ndestinations; i++)
        if (ack_pending_count(d->load_acks[i]) > 0)
            return OK;
    *ret_durable = true;
    return toast_store_sync(d->toast, UINT64_MAX, err); /* the seeds do not come again */
}

/* Rows wait for transactions that are older than the load. */
static enum status load_wait(struct daemon *d, bool *ret_keep, struct error *err)
{
    bool saved, first = d->manifest.load.state == MANIFEST_LOAD_STARTED;
    TRY(load_undecided_save(d->load, d->paths.undecided, load_rows_durable, d, &saved, err));
    *ret_keep = !saved && !first;
    if (!saved || !first)
        return OK;
    d->manifest.load.state = MANIFEST_LOAD_WAITING;
    log_info("msg=\"initial load complete but for rows that wait for the end of older "
             "transactions\" seconds=%.1f rows=%llu",
             (double)(clock_now_ns() - d->load_started_ns) / 1e9,
             (unsigned long long)load_undecided_count(d->load));
    FAULT_POINT("load-before-waiting");
    return OK;
}

/* In the status thread. Until what waits for older transactions is in its file a restart begins the
 * load again; once nothing waits any more and all is durable, the load is complete. Never waits: a
 * stop must not. */
enum status daemon_load_step(struct daemon *d, bool *ret_keep, struct error *err)
{
    bool durable;
    *ret_keep = false;
    if (d->load == NULL)
        return OK;
    if (d->manifest.load.state == MANIFEST_LOAD_COMPLETE) { /* and saved as that */
        (void)unlink(d->paths.undecided);
        return OK;
    }
    if (load_undecided_count(d->load) > 0)
        return load_wait(d, ret_keep, err);
    TRY(load_rows_durable(d, &durable, err));
    *ret_keep = !durable && d->manifest.load.state == MANIFEST_LOAD_WAITING;
    if (!durable)
        return OK; /* the next time */
    d->manifest.load.state = MANIFEST_LOAD_COMPLETE;
    log_info("msg=\"initial load complete\" seconds=%.1f",
             (double)(clock_now_ns() - d->load_started_ns) / 1e9);
    FAULT_POINT("load-before-complete");
    return OK;
}

enum status daemon_load_resume(struct daemon *d, struct error *err)
{
    struct rel_desc **all;
    size_t n, loaded = 0;
    if (d->manifest.load.state == MANIFEST_LOAD_COMPLETE) {
        (void)unlink(d->paths.undecided); /* a kill may have left it */
        return OK;
    }
    d->load_started_ns = clock_now_ns();
    TRY(bootstrap_load_open(d, false, err));
    d->load_jobs = load_jobs_new(d->pipeline, d->load, d->load_acks, d->manifest.load.start_lsn - 1,
                                 d->config->toast.mode != TOAST_DISABLED);
    history_all(d->history, UINT64_MAX, &all, &n);
    struct rel_desc **kept = xcalloc(n, sizeof(struct rel_desc *));
    for (size_t i = 0; i < n; i++)
        if (bootstrap_is_loaded(d, all[i])) {
            load_jobs_add(d->load_jobs, all[i]);
            kept[loaded++] = all[i];
        }
    load_set_relations(d->load, kept, loaded);
    free(kept);
    for (size_t i = 0; i < n; i++)
        rel_desc_unref(all[i]);
    free(all);
    TRY(load_resume(d->load, d->paths.undecided, (TransactionId)d->manifest.load.next_xid, err));
    log_info("msg=\"rows of the initial load still wait for the end of older transactions\" "
             "rows=%llu",
             (unsigned long long)load_undecided_count(d->load));
    return OK;
}
