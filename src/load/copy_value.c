#include "load/copy_value.h"

#include "types/family.h"

#include <string.h>

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

/* The widths of a fixed-width value's parts, in order, 0 ends; both sides have the same order. */
struct parts {
    uint8_t width[4];
};

#define TYPE_INET 869
#define TYPE_NUMERIC 1700
#define TYPE_UUID 2950

static bool is_raw(Oid typid)
{
    uint8_t index;
    const struct type_family *family = type_family_find(typid, &index);
    return typid == TYPE_UUID || (family != NULL && family->raw_text);
}

#define TYPE_TIMETZ 1266
#define TYPE_INTERVAL 1186

/* Numbers, oids, dates and times; false: not one of them. */
static bool fixed_parts(Oid typid, struct parts *ret)
{
    uint8_t index;
    const struct type_family *family = type_family_find(typid, &index);
    if (typid == TYPE_TIMETZ) {
        *ret = (struct parts){{8, 4}}; /* time, zone */
    } else if (typid == TYPE_INTERVAL) {
        *ret = (struct parts){{8, 4, 4}}; /* time, day, month */
    } else {
        /* of those that have a typed target all are numbers of that width */
        if (family == NULL || family->plan == NULL ||
            (family->attlen != 1 && family->attlen != 2 && family->attlen != 4 &&
             family->attlen != 8))
            return false;
        *ret = (struct parts){{(uint8_t)family->attlen}};
    }
    return true;
}

bool copy_value_known(Oid typid)
{
    struct parts parts;
    return typid == TYPE_NUMERIC || typid == TYPE_INET || is_raw(typid) ||
           fixed_parts(typid, &parts);
}

static bool put_fixed(const struct parts *parts, const uint8_t *data, uint32_t len,
                      struct buf *room)
{
    for (unsigned p = 0; p < LENGTH(parts->width) && parts->width[p] != 0; p++) {
        uint8_t n = parts->width[p];
        if (len < n)
            return false;
        uint8_t *to = buf_reserve(room, n);
        for (unsigned i = 0; i < n; i++)
            to[i] = data[n - 1 - i];
        room->len += n;
        data += n;
        len -= n;
    }
    return len == 0;
}

/* numeric_send: digits, weight, sign, scale, each 16 bits, then the base-10000 digits. In the heap:
 * NumericLong (sign in the top two bits, scale), or the sign alone for NaN and infinities. */
static bool put_numeric(const uint8_t *data, uint32_t len, struct buf *room)
{
    if (len < 8)
        return false;
    unsigned ndigits = get16(data), sign = get16(data + 4), dscale = get16(data + 6);
    if (len != 8 + 2 * ndigits)
        return false;
    if (sign == 0xC000 || sign == 0xD000 || sign == 0xF000) {
        buf_put_u16(room, (uint16_t)sign);
        return true;
    }
    if ((sign != 0 && sign != 0x4000) || dscale > 0x3FFF)
        return false;
    buf_put_u16(room, (uint16_t)(sign | dscale));
    buf_put_u16(room, get16(data + 2));
    for (unsigned i = 0; i < ndigits; i++)
        buf_put_u16(room, get16(data + 8 + 2 * i));
    return true;
}

/* inet_send: family, bits of the mask, is it a cidr, bytes of the address, the address. In the
 * heap: family, bits, address. */
static bool put_inet(const uint8_t *data, uint32_t len, struct buf *room)
{
    if (len < 4 || len != 4u + data[3])
        return false;
    buf_put(room, data, 2);
    buf_put(room, data + 4, data[3]);
    return true;
}

enum status copy_value_get(Oid typid, const uint8_t *data, uint32_t len, struct buf *room,
                           const uint8_t **ret, uint32_t *ret_len, struct error *err)
{
    bool sound = false;
    struct parts parts;
    if (is_raw(typid)) {
        *ret = data;
        *ret_len = len;
        return OK;
    }
    buf_reset(room);
    if (typid == TYPE_NUMERIC)
        sound = put_numeric(data, len, room);
    else if (typid == TYPE_INET)
        sound = put_inet(data, len, room);
    else if (fixed_parts(typid, &parts))
        sound = put_fixed(&parts, data, len, room);
    if (!sound)
        return error_set(err, ERR_DATA, "%u bytes are no value of type %u in COPY's binary form",
                         len, typid);
    *ret = room->data;
    *ret_len = (uint32_t)room->len;
    return OK;
}

enum status copy_header_skip(struct cursor *c, struct error *err)
{
    static const char signature[11] = "PGCOPY\n\377\r\n";
    const uint8_t *head = cursor_take(c, sizeof signature + 8);
    if (head == NULL || memcmp(head, signature, sizeof signature) != 0)
        return error_set(err, ERR_DATA, "COPY's answer does not begin as its binary form does");
    uint32_t flags = get32(head + sizeof signature);
    uint32_t extension = get32(head + sizeof signature + 4);
    if (flags != 0 || !cursor_skip(c, extension))
        return error_set(err, ERR_DATA, "COPY's header asks for what is not known (flags %x)",
                         flags);
    return OK;
}

enum status copy_row_begin(struct cursor *c, unsigned nfields, bool *ret_end, struct error *err)
{
    const uint8_t *at = cursor_take(c, 2);
    *ret_end = at != NULL && get16(at) == 0xFFFF;
    if (at == NULL || (!*ret_end && get16(at) != nfields))
        return error_set(err, ERR_DATA, "a row of COPY has not %u fields", nfields);
    return OK;
}

enum status copy_field_next(struct cursor *c, const uint8_t **ret, uint32_t *ret_len,
                            struct error *err)
{
    const uint8_t *at = cursor_take(c, 4);
    uint32_t len = at == NULL ? 0 : get32(at);
    *ret = NULL;
    *ret_len = 0;
    if (at != NULL && len == UINT32_MAX)
        return OK;
    *ret = at == NULL ? NULL : cursor_take(c, len);
    if (*ret == NULL)
        return error_set(err, ERR_DATA, "a row of COPY is cut short");
    *ret_len = len;
    return OK;
}
