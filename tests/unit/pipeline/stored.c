/* Values of the chunk store for all rows of a job: one call, each row its own, errors where they
 * belong. */
#include "feed.h"
#include "pipeline/worker.h"
#include "toast/store_internal.h"

#define NATTS 3
#define LIMIT 1000u /* inline_value_max */
#define DAMAGED 66u /* value ids with a meaning */
#define GONE 77u
#define CALLS_MAX 20

struct fake {
    struct toast_store base;
    enum status fails; /* OK, or how the next call ends at once */
    unsigned calls;
    size_t asked[CALLS_MAX]; /* by each call */
};

static enum status fake_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                              struct error *err)
{
    struct fake *f = (struct fake *)store;
    assert_true(f->calls < CALLS_MAX);
    f->asked[f->calls++] = n;
    if (f->fails != OK)
        return error_set(err, f->fails, "told to fail");
    for (size_t i = 0; i < n; i++) {
        struct toast_request *q = &requests[i];
        if (q->value_id == DAMAGED)
            return error_set(err, ERR_DATA, "damaged");
        q->found = q->value_id == GONE ? TOAST_MISSING : TOAST_FOUND;
        memset(q->ret, (int)(q->value_id + q->lsn), q->extsize);
    }
    return OK;
}

static const struct toast_store_ops fake_ops = {.fetch = fake_fetch};

struct test {
    struct fake store;
    struct worker_shared shared;
    struct worker w;
    struct rel_desc *desc;
    struct route *route;
    struct buf body;
};

static void open_test(struct test *t)
{
    *t = (struct test){.store.base.ops = &fake_ops};
    t->desc = table_desc(TABLE_W, 0, NATTS, true);
    free(t->desc->atts[2].type_name);
    t->desc->atts[2] = t->desc->atts[1];
    t->desc->atts[2].attnum = 3;
    t->desc->atts[2].type_name = xstrdup("text");
    rel_desc_seal(t->desc);
    t->route = xcalloc(1, sizeof *t->route);
    t->route->desc = t->desc;
    t->shared = (struct worker_shared){.toast = &t->store.base, .inline_value_max = LIMIT};
    t->w = (struct worker){.shared = &t->shared};
}

static void close_test(struct test *t)
{
    struct worker *w = &t->w;
    stored_fini(&w->stored);
    free(t->route);
    for (size_t i = 0; i < w->datums_cap; i++) {
        buf_free(&w->plain[i]);
        buf_free(&w->old_plain[i]);
    }
    free(w->plain);
    free(w->old_plain);
    free(w->datums);
    free(w->old_datums);
    buf_free(&t->body);
    rel_desc_unref(t->desc);
}

/* len 0: an empty value in the row. */
static void put_value(struct buf *out, Oid value_id, uint32_t len)
{
    if (len == 0) {
        buf_put_u8(out, 3); /* a short header alone */
        return;
    }
    buf_put_u8(out, 1);
    buf_put_u8(out, 18); /* VARTAG_ONDISK */
    buf_put_u32(out, len + 4);
    buf_put_u32(out, len);
    buf_put_u32(out, value_id);
    buf_put_u32(out, TABLE_W + 3);
}

/* A row with two values of so many bytes. */
static struct raw_tuple row(struct test *t, Oid first, uint32_t first_len, Oid second,
                            uint32_t second_len)
{
    buf_reset(&t->body);
    buf_put_u8(&t->body, 0);
    buf_put_u32(&t->body, 1);
    put_value(&t->body, first, first_len);
    put_value(&t->body, second, second_len);
    bool external = first_len > 0 || second_len > 0;
    return (struct raw_tuple){.infomask2 = NATTS,
                              .infomask = external ? HEAP_HASEXTERNAL : 0,
                              .hoff = 24,
                              .body_len = (uint32_t)t->body.len,
                              .body = t->body.data};
}

static void note_row(struct test *t, Oid first, uint32_t first_len, Oid second, uint32_t second_len,
                     XLogRecPtr lsn)
{
    struct raw_tuple tuple = row(t, first, first_len, second, second_len);
    stored_note(&t->w, t->route, &tuple, NULL, 0, lsn);
}

static enum status resolve_row(struct test *t, Oid first, uint32_t first_len, Oid second,
                               uint32_t second_len, XLogRecPtr lsn)
{
    struct error err = {0};
    struct buf *room;
    struct raw_tuple tuple = row(t, first, first_len, second, second_len);
    struct datum *datums = worker_datums(&t->w, NATTS, &room);
    assert_ok(tuple_deform(t->desc->shape, &tuple, datums, &err));
    return row_resolve(&t->w, t->route, lsn, datums, NULL, 0, room, &err);
}

static void assert_value(const struct test *t, unsigned att, Oid value_id, uint32_t len,
                         XLogRecPtr lsn)
{
    const struct datum *d = &t->w.datums[att];
    assert_int_equal(d->state, DATUM_VALUE);
    assert_int_equal(d->len, len);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(d->data[i], (uint8_t)(value_id + lsn));
}

#define assert_resolved(call) assert_int_equal(call, OK)

static void all_in_one_call(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    open_test(&t);
    for (unsigned job = 0; job < 2; job++) {
        note_row(&t, 1, 500, 2, 30, 100);
        note_row(&t, 0, 0, 0, 0, 110);
        note_row(&t, 3, LIMIT + 1, GONE, 20, 120); /* a value that is not read */
        note_row(&t, 1, 500, 0, 0, 130);           /* the first again, later */
        assert_ok(stored_ask(&t.w, &err));
        assert_int_equal(t.store.calls, job + 1);
        assert_int_equal(t.store.asked[job], 4);

        assert_resolved(resolve_row(&t, 1, 500, 2, 30, 100));
        assert_value(&t, 1, 1, 500, 100);
        assert_value(&t, 2, 2, 30, 100);
        assert_resolved(resolve_row(&t, 0, 0, 0, 0, 110));
        assert_resolved(resolve_row(&t, 3, LIMIT + 1, 0, 0, 120));
        assert_int_equal(t.w.datums[1].state, DATUM_TOO_LARGE);
        /* the value that is gone was not taken: its row failed before it */
        assert_resolved(resolve_row(&t, 1, 500, 0, 0, 130));
        assert_value(&t, 1, 1, 500, 130);
        assert_int_equal(t.store.calls, job + 1);
        stored_clear(&t.w.stored);
    }
    close_test(&t);
}

static void not_asked_before(void **state)
{
    struct test t;
    (void)state;
    open_test(&t);
    assert_resolved(resolve_row(&t, 1, 500, 2, 600, 100));
    assert_value(&t, 1, 1, 500, 100); /* the second did not take its room */
    assert_value(&t, 2, 2, 600, 100);
    assert_int_equal(t.store.calls, 2);
    close_test(&t);
}

/* Rows before and after a damaged value are whole, its own row has the error. */
static void damaged_value(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    open_test(&t);
    note_row(&t, 1, 500, 0, 0, 100);
    note_row(&t, DAMAGED, 500, 3, 500, 110);
    note_row(&t, 4, 400, 5, 500, 120);
    assert_ok(stored_ask(&t.w, &err));
    assert_resolved(resolve_row(&t, 1, 500, 0, 0, 100));
    assert_value(&t, 1, 1, 500, 100);
    assert_int_equal(t.store.calls, 1);
    assert_int_equal(resolve_row(&t, DAMAGED, 500, 3, 500, 110), ERR_DATA);
    assert_resolved(resolve_row(&t, 4, 400, 5, 500, 120));
    assert_value(&t, 1, 4, 400, 120);
    assert_value(&t, 2, 5, 500, 120);
    close_test(&t);
}

static void other_errors_end_the_job(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    open_test(&t);
    note_row(&t, 1, 500, 0, 0, 100);
    t.store.fails = ERR_CANCELLED;
    assert_int_equal(stored_ask(&t.w, &err), ERR_CANCELLED);
    close_test(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_in_one_call),
        cmocka_unit_test(not_asked_before),
        cmocka_unit_test(damaged_value),
        cmocka_unit_test(other_errors_end_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
