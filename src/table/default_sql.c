/* A value as a SQL expression: what a column that is added reads as in the rows that were there
 * before. Made from the encoder's own bytes, so that these rows have what a row sent has. */
#include "native/column.h"
#include "clickhouse/sql_quote.h"
#include "table/alter.h"

#include <string.h>

/* Fixed-width types that `reinterpret` makes from bytes (26.7). */
static bool is_reinterpreted(enum type_kind kind)
{
    switch ((int)kind) {
    case TYPE_BOOL:
    case TYPE_INT8:
    case TYPE_INT16:
    case TYPE_INT32:
    case TYPE_INT64:
    case TYPE_INT128:
    case TYPE_INT256:
    case TYPE_UINT8:
    case TYPE_UINT16:
    case TYPE_UINT32:
    case TYPE_UINT64:
    case TYPE_UINT128:
    case TYPE_UINT256:
    case TYPE_FLOAT32:
    case TYPE_FLOAT64:
    case TYPE_DECIMAL:
    case TYPE_DATETIME64:
    case TYPE_UUID:
        return true;
    default:
        return false;
    }
}

static void put_type(const struct type_node *type, struct buf *out)
{
    CLEANUP_BUF struct buf name = {0};
    type_name_print(type, &name);
    sql_quote_string(out, buf_cstr(&name));
}

static void put_reinterpret(const struct type_node *type, const struct buf *data, struct buf *out)
{
    buf_printf(out, "reinterpret(unhex('");
    for (size_t i = 0; i < data->len; i++)
        buf_printf(out, "%02X", data->data[i]);
    buf_printf(out, "'), ");
    put_type(type, out);
    buf_printf(out, ")");
}

/* Date32, Time64: by their text. */
static bool put_cast(const struct type_node *type, const struct buf *data, struct arena *arena,
                     struct buf *out)
{
    struct cursor c = cursor_of(data->data, data->len);
    struct column_text text;
    if (column_text_read(type, 1, &c, arena, &text, NULL) != OK || text.data == NULL)
        return false;
    buf_printf(out, "CAST(");
    sql_quote_string(out, text.data);
    buf_printf(out, ", ");
    put_type(type, out);
    buf_printf(out, ")");
    return true;
}

static bool put_text_literal(const struct buf *data, struct buf *out)
{
    struct cursor c = cursor_of(data->data, data->len);
    uint64_t len = cursor_varint(&c);
    const uint8_t *at = len <= cursor_left(&c) ? cursor_take(&c, (size_t)len) : NULL;
    if (at == NULL)
        return false;
    buf_put_u8(out, '\'');
    for (uint64_t i = 0; i < len; i++) {
        if (at[i] == 0) {
            buf_printf(out, "\\0");
            continue;
        }
        if (at[i] == '\'' || at[i] == '\\')
            buf_put_u8(out, '\\');
        buf_put_u8(out, at[i]);
    }
    buf_put_u8(out, '\'');
    return true;
}

static bool put_value(const struct encoder *e, const struct buf *data, struct buf *out)
{
    struct arena arena = {0};
    const struct type_node *type;
    bool ok = type_name_parse(&arena, e->ch_type, strlen(e->ch_type), &type, NULL) == OK;
    if (ok && type->kind == TYPE_NULLABLE)
        type = type->children[0];
    if (ok && is_reinterpreted(type->kind))
        put_reinterpret(type, data, out);
    else if (ok && (type->kind == TYPE_DATE32 || type->kind == TYPE_TIME64))
        ok = put_cast(type, data, &arena, out);
    else
        ok = ok && type->kind == TYPE_STRING && put_text_literal(data, out);
    arena_free(&arena);
    return ok;
}

bool target_default_sql(const struct target_column *col, const struct att_desc *att,
                        struct buf *out)
{
    struct column_buf value = {0};
    const struct encoder *e = &col->encoder;
    const char *reason;
    bool ok = true;
    if (!att->has_missing)
        return true;
    if (att->missing == NULL || (att->missing_is_text && !encoder_is_text(e)))
        return false;
    if (att->missing_is_text)
        encoder_append_text(e, att->missing, att->missing_len, &value);
    else
        ok = e->append(e, att->missing, att->missing_len, &value, &reason) == ENCODE_OK;
    ok = ok && put_value(e, &value.data, out);
    buf_free(&value.data);
    buf_free(&value.nulls);
    return ok;
}
