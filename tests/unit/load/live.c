/* Load + stream = source, with writers: a real server, BASE_BACKUP and physical replication. */
#include "base/file.h"
#include "base/queue.h"
#include "load/load.h"
#include "pg/xact_record.h"
#include "row_map.h"
#include "scratch_pg.h"
#include "wal/reader.h"

#include <stdatomic.h>

#define XIDS (1u << 20)
#define TABLES 2u

struct pending_change {
    struct pending_change *next;
    uint64_t tid, hash;
    XLogRecPtr lsn;
};

struct live {
    struct scratch_pg pg;
    PGconn *sql;  /* the test's */
    PGconn *side; /* of the load's own threads */
    PGconn *asks;
    pthread_mutex_t asks_lock; /* guards asks */
    struct load *load;
    struct rel_desc *rels[TABLES]; /* t and, in another tablespace, u */
    struct queue batches;
    atomic_int outstanding; /* batches submitted and not yet walked */
    struct row_map rows;
    XLogRecPtr start_lsn;
    struct source_repl *wal;
    struct wal_reader *reader;
    pthread_t wal_thread, workers[2];
    struct pending_change **by_xid;
    atomic_ulong asked, samples;
    char shadow[128];
};

/* The stream: changes by xid, applied at commit. */

static void pending_add(struct live *t, TransactionId xid, uint64_t tid, uint64_t hash,
                        XLogRecPtr lsn)
{
    struct pending_change *p = xmalloc(sizeof *p);
    CHECK(xid < XIDS);
    *p = (struct pending_change){t->by_xid[xid], tid, hash, lsn};
    t->by_xid[xid] = p;
}

static void xid_end(struct live *t, TransactionId xid, bool commit)
{
    CHECK(xid < XIDS);
    for (struct pending_change *p = t->by_xid[xid], *next; p != NULL; p = next) {
        next = p->next;
        if (commit)
            row_map_put(&t->rows, p->tid, p->lsn, p->hash);
        free(p);
    }
    t->by_xid[xid] = NULL;
}

/* TIDs of the second table get a bit of their own. */
static bool table_of(const struct live *t, struct rel_file_locator locator, uint64_t *ret_part)
{
    for (unsigned i = 0; i < TABLES; i++) {
        *ret_part = (uint64_t)i << 60;
        if (rel_file_locator_equal(locator, t->rels[i]->locator))
            return true;
    }
    return false;
}

struct change_ctx {
    struct live *t;
    TransactionId xid;
};

static enum status change_take(void *ctx, const struct change *c, struct error *err)
{
    const struct change_ctx *x = ctx;
    uint64_t part;
    if (!table_of(x->t, c->locator, &part))
        return OK;
    if (c->kind == CHANGE_SPEC_CONFIRM || c->kind == CHANGE_SPEC_DELETE)
        return error_set(err, ERR_BUG, "not expected here");
    if (c->old_tid != 0)
        pending_add(x->t, x->xid, part | c->old_tid, 0, c->lsn);
    if (c->has_new)
        pending_add(x->t, x->xid, part | c->new_tid, row_tuple_hash(&x->t->rows, &c->new_tuple),
                    c->lsn + 1 + c->ordinal);
    return OK;
}

static enum status record_take(void *ctx, const struct wal_record *r, struct error *err)
{
    struct live *t = ctx;
    TRY(load_window_record(load_window(t->load), r, err));
    if (r->rmid == RM_HEAP_ID || r->rmid == RM_HEAP2_ID) {
        struct change_ctx x = {t, r->xid};
        bool incomplete; /* only catalogs' */
        return heap_record_changes(r, change_take, &x, &incomplete, err);
    }
    if (r->rmid == RM_XACT_ID) {
        struct xact_record x;
        TRY(xact_record_parse(r, 15, &x, err));
        bool commit = x.kind == XACT_COMMIT || x.kind == XACT_COMMIT_PREPARED;
        if (!commit && x.kind != XACT_ABORT && x.kind != XACT_ABORT_PREPARED)
            return OK;
        xid_end(t, x.xid, commit);
        for (uint32_t i = 0; i < x.subxacts.count; i++)
            xid_end(t, xid_list_get(&x.subxacts, i), commit);
    }
    return OK;
}

static void *wal_main(void *arg)
{
    struct live *t = arg;
    struct error err = {0};
    for (;;) {
        struct source_chunk chunk;
        enum status status = source_repl_receive(t->wal, UINT64_MAX, &chunk, &err);
        if (status == OK && chunk.kind == SOURCE_CHUNK_DATA) {
            status = wal_reader_push(t->reader, chunk.lsn, chunk.data, chunk.len, &err);
            load_window_position(load_window(t->load), chunk.lsn + chunk.len);
        }
        if (status == ERR_CANCELLED || scratch_pg_stopping)
            return NULL;
        if (status != OK) {
            fprintf(stderr, "WAL thread: %s\n", err.message);
            abort();
        }
    }
}

/* Callbacks of the load. */

static bool is_catalog(void *ctx, struct rel_file_locator locator)
{
    (void)ctx, (void)locator;
    return false;
}

static enum status run_backup(void *ctx, const struct source_backup_callbacks *callbacks,
                              struct error *err)
{
    struct live *t = ctx;
    struct source_repl *r;
    TRY(source_repl_open(t->pg.conninfo, "load-test-backup", &r, err));
    enum status status = source_base_backup_run(r, "load-test", callbacks, err);
    source_repl_close(r);
    return status;
}

static enum status sample_next_xid(void *ctx, TransactionId *ret, struct error *err)
{
    struct live *t = ctx;
    char text[64];
    (void)err;
    value(t->side, "select split_part(next_xid, ':', 2) from pg_control_checkpoint()", text,
          sizeof text);
    *ret = (TransactionId)atol(text);
    return OK;
}

static enum status started(void *ctx, XLogRecPtr start_lsn, uint32_t timeline, struct error *err)
{
    struct live *t = ctx;
    const struct wal_reader_options options = {.major = 15,
                                               .segment_bytes = 16 << 20,
                                               .keep_max = SIZE_MAX,
                                               .ctx = t,
                                               .on_record = record_take};
    t->start_lsn = start_lsn;
    t->reader = wal_reader_new(&options, start_lsn);
    TRY(source_repl_start(t->wal, NULL, start_lsn, timeline, err));
    CHECK(pthread_create(&t->wal_thread, NULL, wal_main, t) == 0);
    return OK;
}

static enum status sample_flush_lsn(void *ctx, XLogRecPtr *ret, struct error *err)
{
    struct live *t = ctx;
    char text[64];
    t->samples++;
    if (!lsn_parse(value(t->side, "select pg_current_wal_flush_lsn()", text, sizeof text), ret))
        return error_set(err, ERR_DATA, "flush position %s", text);
    return OK;
}

static enum status ask_fates(void *ctx, const TransactionId *xids, size_t n, uint8_t *ret,
                             struct error *err)
{
    struct live *t = ctx;
    struct buf sql = {0};
    (void)err;
    buf_printf(&sql, "select pg_xact_status(x) from unnest('{");
    for (size_t i = 0; i < n; i++)
        buf_printf(&sql, "%s%u", i > 0 ? "," : "", xids[i]);
    buf_printf(&sql, "}'::text[]::xid8[]) with ordinality u (x, o) order by o");
    pthread_mutex_lock(&t->asks_lock);
    PGresult *r = query(t->asks, buf_cstr(&sql));
    pthread_mutex_unlock(&t->asks_lock);
    for (size_t i = 0; i < n; i++) {
        const char *text = PQgetvalue(r, (int)i, 0);
        ret[i] = text[0] == 'c' ? FATE_COMMITTED : text[0] == 'a' ? FATE_ABORTED : FATE_UNKNOWN;
    }
    PQclear(r);
    buf_free(&sql);
    t->asked += n;
    return OK;
}

static enum status submit(void *ctx, struct page_batch *batch, struct error *err)
{
    struct live *t = ctx;
    t->outstanding++;
    if (queue_push(&t->batches, batch, page_batch_bytes(batch), err) == OK)
        return OK;
    page_batch_free(batch);
    return ERR_CANCELLED;
}

static void table_stopped(void *ctx, const struct rel_desc *desc, const char *reason)
{
    (void)ctx;
    fprintf(stderr, "%s stopped: %s\n", desc->name, reason);
    abort();
}

struct walked {
    struct live *t;
    const struct page_batch *batch;
};

static enum status emit(void *ctx, enum load_row_kind kind, const struct raw_tuple *tuple,
                        uint64_t tid, TransactionId xid, struct error *err)
{
    const struct walked *w = ctx;
    struct live *t = w->t;
    uint64_t part;
    (void)xid, (void)err;
    CHECK(table_of(t, w->batch->desc->locator, &part));
    row_map_put(&t->rows, part | tid, t->start_lsn - 3 + kind,
                kind == LOAD_ROW_DELETED ? 0 : row_tuple_hash(&t->rows, tuple));
    return OK;
}

static void *worker_main(void *arg)
{
    struct live *t = arg;
    struct error err;
    for (struct page_batch *b; (b = queue_pop(&t->batches)) != NULL; page_batch_free(b)) {
        struct walked w = {t, b};
        if (page_batch_walk(b, t->load, emit, &w, &err) != OK) {
            fprintf(stderr, "worker: %s\n", err.message);
            abort();
        }
        t->outstanding--;
    }
    return NULL;
}

/* Waits until the window has passed what is flushed now and every batch has been walked. */
static void settle(struct live *t)
{
    char text[64];
    XLogRecPtr lsn = 0;
    run(t->sql, "set synchronous_commit = on; create table tick (); drop table tick");
    assert_true(
        lsn_parse(value(t->sql, "select pg_current_wal_flush_lsn()", text, sizeof text), &lsn));
    for (int i = 0; i < 6000; i++, usleep(5000))
        if (load_window_passed(load_window(t->load)) >= lsn && t->outstanding == 0)
            return;
    fail_msg("the load does not settle: %d batches", t->outstanding);
}

static struct rel_desc *describe(struct live *t, const char *name)
{
    char sql[200], text[64];
    struct rel_desc *d = rel_desc_new(3);
    snprintf(d->schema, sizeof d->schema, "public");
    snprintf(d->name, sizeof d->name, "%s", name);
    snprintf(sql, sizeof sql, "select pg_relation_filenode('%s')", name);
    d->locator.rel_number = (Oid)atol(value(t->sql, sql, text, sizeof text));
    d->locator.db_oid = (Oid)atol(
        value(t->sql, "select oid from pg_database where datname = 'app'", text, sizeof text));
    snprintf(sql, sizeof sql,
             "select case reltablespace when 0 then 1663 else reltablespace end from pg_class "
             "where relname = '%s'",
             name);
    d->locator.spc_oid = (Oid)atol(value(t->sql, sql, text, sizeof text));
    d->atts[0].attlen = 4, d->atts[0].attalign = 'i';
    d->atts[1].attlen = 8, d->atts[1].attalign = 'd';
    d->atts[2].attlen = -1, d->atts[2].attalign = 'i';
    rel_desc_seal(d);
    return d;
}

static void tables_make(struct live *t)
{
    char sql[256];
    t->sql = scratch_pg_connect(&t->pg);
    t->side = scratch_pg_connect(&t->pg);
    t->asks = scratch_pg_connect(&t->pg);
    assert_int_equal(shell("%s mkdir %s/space", as_postgres(), t->pg.dir), 0);
    snprintf(sql, sizeof sql, "create tablespace space location '%s/space'", t->pg.dir);
    run(t->sql, sql);
    run(t->sql, "create table t (id int4, v int8, s text) with (fillfactor = 80);"
                "create table u (id int4, v int8, s text) tablespace space;"
                "create index on t (id); create index on u (id)");
    /* left without hint bits: committed, aborted, and both within one transaction */
    run(t->sql, "insert into t select g, g, repeat('x', g % 150) from generate_series(1, 60000) g");
    run(t->sql, "insert into u select g, -g, 'u' || g from generate_series(1, 20000) g");
    run(t->sql, "update t set v = v + 1000 where id % 7 = 0");
    run(t->sql, "begin; update t set v = -1 where id % 11 = 0; rollback");
    run(t->sql,
        "begin; delete from u where id % 5 = 0; savepoint a; delete from u where id % 3 = 0;"
        "rollback to a; savepoint b; update u set s = 'sub' where id % 4 = 1; commit");
    run(t->sql,
        "begin; insert into t select g, 0, 'gone' from generate_series(1, 3000) g; rollback");
    t->rels[0] = describe(t, "t");
    t->rels[1] = describe(t, "u");
    assert_int_not_equal(t->rels[1]->locator.spc_oid, 1663);
}

static void live_start(struct live *t)
{
    struct error err;
    scratch_pg_start(&t->pg);
    tables_make(t);
    pthread_mutex_init(&t->asks_lock, NULL);
    queue_init(&t->batches, 4 << 20);
    row_map_init(&t->rows);
    t->by_xid = xcalloc(XIDS, sizeof(struct pending_change *));
    snprintf(t->shadow, sizeof t->shadow, "%s/shadow", t->pg.dir);
    assert_ok(file_mkdir_p(t->shadow, 0700, &err));
    assert_ok(source_repl_open(t->pg.conninfo, "load-test-wal", &t->wal, &err));
    const struct load_options options = {
        .rels = t->rels,
        .nrels = TABLES,
        .db_oid = t->rels[0]->locator.db_oid,
        .db_tablespace = 1663,
        .major = 15,
        .shadow_dir = t->shadow,
        .spill_dir = t->pg.dir,
        .waiting_max_bytes = 1 << 20, /* small: both limits are met */
        .undecided_max_bytes = 1 << 14,
        .ctx = t,
        .is_catalog = is_catalog,
        .run_backup = run_backup,
        .sample_next_xid = sample_next_xid,
        .started = started,
        .sample_flush_lsn = sample_flush_lsn,
        .ask_fates = ask_fates,
        .submit = submit,
        .table_stopped = table_stopped,
    };
    t->load = load_new(&options);
    for (size_t i = 0; i < LENGTH(t->workers); i++)
        assert_int_equal(pthread_create(&t->workers[i], NULL, worker_main, t), 0);
}

static void live_stop(struct live *t)
{
    source_repl_wake(t->wal);
    pthread_join(t->wal_thread, NULL);
    queue_close(&t->batches);
    for (size_t i = 0; i < LENGTH(t->workers); i++)
        pthread_join(t->workers[i], NULL);
    queue_fini(&t->batches);
    load_free(t->load);
    wal_reader_free(t->reader);
    source_repl_close(t->wal);
    for (unsigned i = 0; i < TABLES; i++)
        rel_desc_unref(t->rels[i]);
    for (TransactionId xid = 0; xid < XIDS; xid++)
        xid_end(t, xid, false);
    free(t->by_xid);
    row_map_fini(&t->rows);
    PQfinish(t->sql);
    PQfinish(t->side);
    PQfinish(t->asks);
    scratch_pg_clean();
}

static unsigned long compare_table(struct live *t, unsigned table, unsigned long *ret_wrong)
{
    PGresult *r =
        query(t->sql, table == 0 ? "select (ctid::text::point)[0], (ctid::text::point)[1],"
                                   " id, v, s from t"
                                 : "select (ctid::text::point)[0], (ctid::text::point)[1],"
                                   " id, v, s from u");
    for (int i = 0; i < PQntuples(r); i++) {
        uint64_t tid = tid_make((BlockNumber)atol(PQgetvalue(r, i, 0)),
                                (OffsetNumber)atol(PQgetvalue(r, i, 1)));
        const char *s = PQgetvalue(r, i, 4);
        uint64_t want =
            row_hash(atoi(PQgetvalue(r, i, 2)), atoll(PQgetvalue(r, i, 3)), s, strlen(s));
        const struct row *got = row_map_get(&t->rows, (uint64_t)table << 60 | tid);
        *ret_wrong += got == NULL || got->hash != want;
    }
    unsigned long n = (unsigned long)PQntuples(r);
    PQclear(r);
    return n;
}

static void compare(struct live *t)
{
    unsigned long wrong = 0, live = 0;
    unsigned long source = compare_table(t, 0, &wrong) + compare_table(t, 1, &wrong);
    for (size_t i = 0; i <= t->rows.mask; i++)
        live += t->rows.rows[i].tid != 0 && t->rows.rows[i].hash != 0;
    if (wrong > 0 || live != source)
        fail_msg("%lu of %lu rows wrong, %lu there", wrong, source, live);
    assert_true(source > 50000);
}

/* Transactions that are open when the backup starts. */
static void open_before(PGconn *commits, PGconn *aborts, PGconn *prepares)
{
    run(commits, "begin; insert into t select g, 1, 'open' from generate_series(1, 2000) g;"
                 "update t set v = 5 where id between 100 and 900; savepoint a;"
                 "delete from u where id between 1 and 700; rollback to a; savepoint b;"
                 "delete from u where id between 900 and 1300; release b");
    run(aborts, "begin; insert into u select g, 1, 'no' from generate_series(1, 1500) g;"
                "update t set v = 6 where id between 2000 and 2900;"
                "delete from t where id between 3000 and 3300");
    run(prepares, "begin; update t set v = 7 where id between 4000 and 4400;"
                  "insert into u values (1, 2, 'prepared'); prepare transaction 'gid'");
}

static void test_load_and_stream_equal_the_source(void **state)
{
    struct error err;
    struct live t = {0};
    struct load_progress progress;
    (void)state;
    live_start(&t);
    PGconn *commits = scratch_pg_connect(&t.pg), *aborts = scratch_pg_connect(&t.pg);
    PGconn *prepares = scratch_pg_connect(&t.pg);
    open_before(commits, aborts, prepares);
    CLEANUP_FREE char *script = xasprintf("%s/script.sql", t.pg.dir);
    FILE *f = fopen(script, "w");
    assert_non_null(f);
    fputs("\\set i random(5000, 60000)\n"
          "update t set v = v + 1 where id = :i;\n"
          "begin;\ninsert into u values (:i, 0, 'new');\nsavepoint s;\n"
          "delete from t where id = :i + 1;\nrollback to s;\n"
          "delete from u where id = :i - 3 and v < 0;\ncommit;\n"
          "begin;\nupdate t set s = 'never' where id = :i + 2;\nrollback;\n"
          "insert into t values (:i + 100000, 0, 'fresh');\n"
          "vacuum u;\n",
          f);
    fclose(f);
    shell("(exec pgbench -n -h %s -U postgres -c 2 -T 5 -f %s app >%s/bench 2>&1) &", t.pg.dir,
          script, t.pg.dir);
    usleep(700 * 1000);
    assert_ok(load_backup_run(t.load, &err));
    settle(&t);
    assert_ok(load_finish(t.load, &err));
    assert_true(load_undecided_count(t.load) > 0); /* of the three open ones */
    run(commits, "insert into t values (-1, -1, 'late'); commit");
    run(aborts, "rollback");
    run(prepares, "commit prepared 'gid'");
    sleep(5); /* the writers' time */
    settle(&t);
    assert_int_equal(load_undecided_count(t.load), 0);
    load_progress_get(t.load, &progress);
    assert_true(progress.rows > 50000 && progress.end_lsn > progress.start_lsn);
    assert_true(progress.bytes_done >= 20 << 20 && t.samples > 2 && t.asked > 3);
    compare(&t);
    PQfinish(commits);
    PQfinish(aborts);
    PQfinish(prepares);
    live_stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load_and_stream_equal_the_source)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
