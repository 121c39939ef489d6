/* text, varchar, bpchar, json, bytea, name, "char", uuid. Text is passed on as stored: bpchar keeps
 * its blanks, bytes that are no valid UTF-8 stay as they are. */
#include "types/family.h"

static const char hex_digits[] = "0123456789abcdef";

void type_default_string(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "String");
}

static enum encode_result encode_string(const struct encoder *e, const uint8_t *data, uint32_t len,
                                        struct column_buf *out, const char **ret_reason)
{
    (void)ret_reason;
    put_string(&out->data, data, len);
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool plan_string(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_STRING)
        return false;
    e->append = encode_string;
    e->width = 0;
    return true;
}

static bool text_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    buf_put(out, data, len);
    return true;
}

/* bytea_output = hex; the column itself gets the bytes */
static bool bytea_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint8_t *at = buf_reserve(out, (size_t)len * 2 + 2);
    *at++ = '\\';
    *at++ = 'x';
    for (uint32_t i = 0; i < len; i++) {
        *at++ = (uint8_t)hex_digits[data[i] >> 4];
        *at++ = (uint8_t)hex_digits[data[i] & 15];
    }
    out->len += (size_t)len * 2 + 2;
    return true;
}

/* 64 bytes, the text ends at the first zero byte */
static bool name_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != NAMEDATALEN)
        return false;
    buf_put(out, data, strnlen((const char *)data, len));
    return true;
}

/* One byte; the zero byte is the empty text. */
static bool char_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 1)
        return false;
    if (data[0] >= 0x80)
        buf_printf(out, "\\%03o", data[0]);
    else if (data[0] != 0)
        buf_put_u8(out, data[0]);
    return true;
}

#define TEXT_FAMILY(name, oid, text_fn)                                                            \
    const struct type_family family_##name = {.typid = oid,                                        \
                                              .attlen = -1,                                        \
                                              .raw_text = true,                                    \
                                              .default_type = type_default_string,                 \
                                              .plan = plan_string,                                 \
                                              .text = text_fn}
TEXT_FAMILY(text, 25, text_text);
TEXT_FAMILY(varchar, 1043, text_text);
TEXT_FAMILY(bpchar, 1042, text_text);
TEXT_FAMILY(json, 114, text_text);
TEXT_FAMILY(refcursor, 1790, text_text);
TEXT_FAMILY(bytea, 17, bytea_text);

const struct type_family family_name = {
    .typid = 19, .attlen = NAMEDATALEN, .default_type = type_default_string, .text = name_text};
const struct type_family family_char = {
    .typid = 18, .attlen = 1, .default_type = type_default_string, .text = char_text};

/* ---- uuid ---- */

static void uuid_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "UUID");
}

/* PostgreSQL: 16 bytes in the order of the text. ClickHouse: two little-endian 64-bit halves, high
 * half first (clickhouse-notes B2). */
static enum encode_result encode_uuid(const struct encoder *e, const uint8_t *data, uint32_t len,
                                      struct column_buf *out, const char **ret_reason)
{
    uint64_t half[2];
    if (__builtin_expect(len != sizeof half, 0))
        return encode_bad(ret_reason, REASON_LENGTH);
    memcpy(half, data, sizeof half);
    half[0] = __builtin_bswap64(half[0]);
    half[1] = __builtin_bswap64(half[1]);
    buf_put(&out->data, half, sizeof half);
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool plan_uuid(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_UUID)
        return false;
    e->append = encode_uuid;
    e->width = 16;
    return true;
}

static bool uuid_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 16)
        return false;
    uint8_t *at = buf_reserve(out, 36);
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = (uint8_t)hex_digits[data[i] >> 4];
        *at++ = (uint8_t)hex_digits[data[i] & 15];
    }
    out->len += 36;
    return true;
}

const struct type_family family_uuid = {2950, 16, false, uuid_default, plan_uuid, uuid_text, NULL};
