#include "pump/class_row.h"
#include "base/bytes.h"
#include "pg/change.h"

#include <string.h>

/* catalog/pg_class.h: these columns have a fixed length and are never null. */
#define NAME_OFFSET 4u
#define NAME_BYTES 64u
#define FILENODE_OFFSET 88u
#define PERSISTENCE_OFFSET 114u
#define PERSISTENCE_OFFSET_18 118u /* behind relallfrozen */

struct reader {
    unsigned major;
    class_row_fn fn;
    void *ctx;
};

static enum status take_row(void *ctx, const struct change *change, struct error *err)
{
    const struct reader *reader = ctx;
    const struct raw_tuple *tuple = &change->new_tuple;
    uint32_t data = tuple->hoff - SizeofHeapTupleHeader;
    uint32_t persistence =
        data + (reader->major >= 18 ? PERSISTENCE_OFFSET_18 : PERSISTENCE_OFFSET);
    if (change->kind != CHANGE_INSERT)
        return OK;
    if (tuple->hoff < SizeofHeapTupleHeader || persistence >= tuple->body_len ||
        memchr(tuple->body + data + NAME_OFFSET, 0, NAME_BYTES) == NULL)
        return error_lsn(err, ERR_DATA, change->lsn, "not a row of pg_class");
    const struct class_row row = {
        .oid = u32_at(tuple->body + data),
        .name = (const char *)tuple->body + data + NAME_OFFSET,
        .filenode = u32_at(tuple->body + data + FILENODE_OFFSET),
        .persistence = (char)tuple->body[persistence],
    };
    reader->fn(reader->ctx, &row);
    return OK;
}

bool class_rows_each(const struct wal_record *record, unsigned major, class_row_fn fn, void *ctx)
{
    bool incomplete;
    struct error err;
    struct reader reader = {major, fn, ctx};
    bool is_insert = record->rmid == RM_HEAP2_ID || (record->info & 0x70) == 0x00;
    if (!is_insert) /* the relation of a row does not become another */
        return true;
    return heap_record_changes(record, take_row, &reader, &incomplete, &err) == OK && !incomplete;
}
