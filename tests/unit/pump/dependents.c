/* Which relations a change of a type concerns. */
#include "pump/dependents.h"

#include "catalog/relations.h"

#include <stdlib.h>
#include <unistd.h>

#define COMPOSITE_REL 30000u

static struct rel_desc *relation_of(Oid oid, enum type_desc_kind kind)
{
    struct rel_desc *d = relation(oid, 0, oid, 1);
    d->types = type_closure_new(1);
    d->types->types[0] =
        (struct type_desc){.oid = 23,
                           .kind = (uint8_t)kind,
                           .typlen = -1,
                           .typalign = 'i',
                           .typdelim = ',',
                           .relid = kind == TYPE_DESC_COMPOSITE ? COMPOSITE_REL : 0};
    type_closure_seal(d->types);
    rel_desc_seal(d);
    return d;
}

static int oid_order(const void *a, const void *b)
{
    Oid x = *(const Oid *)a, y = *(const Oid *)b;
    return x < y ? -1 : x > y;
}

static void assert_oids(struct history *h, Oid changed, bool enums, const Oid *want, size_t n)
{
    CLEANUP_BUF struct buf oids = {0};
    if (changed != 0)
        buf_put_u32(&oids, changed);
    dependents_add(h, enums, &oids);
    assert_int_equal(oids.len / sizeof(Oid), n);
    if (n > 0) {
        qsort(oids.data, n, sizeof(Oid), oid_order);
        assert_memory_equal(oids.data, want, n * sizeof(Oid));
    }
}

static void test_dependents(void **state)
{
    char path[] = "/tmp/dependents-XXXXXX";
    struct history *h = NULL;
    struct error err = {0};
    struct rel_desc *all[] = {relation(20001, 0, 20001, 1), relation_of(20002, TYPE_DESC_ENUM),
                              relation_of(20003, TYPE_DESC_COMPOSITE),
                              relation_of(20004, TYPE_DESC_ARRAY)};
    (void)state;
    close(mkstemp(path));
    assert_ok(history_open(path, &h, &err));
    assert_ok(history_append(h, all, LENGTH(all), 100, &err));
    assert_oids(h, 0, false, NULL, 0);
    assert_oids(h, 20001, false, (const Oid[]){20001}, 1);
    assert_oids(h, 0, true, (const Oid[]){20002}, 1);
    assert_oids(h, COMPOSITE_REL, false, (const Oid[]){20003, COMPOSITE_REL}, 2);
    assert_oids(h, COMPOSITE_REL, true, (const Oid[]){20002, 20003, COMPOSITE_REL}, 3);
    history_free(h);
    for (size_t i = 0; i < LENGTH(all); i++)
        rel_desc_unref(all[i]);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dependents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
