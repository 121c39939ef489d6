/* attmissingval: from the send form of a value to the datum a heap tuple would hold.
 * Sources: the send functions of the types (utils/adt), array_send of arrayfuncs.c, numeric.c
 * (struct NumericShort, NumericLong, numeric_send). The same in 15 to 18. */
#include "catalog/query.h"

#include <endian.h>

/* catalog/pg_type.dat */
enum {
    T_BOOL = 16,
    T_BYTEA = 17,
    T_CHAR = 18,
    T_NAME = 19,
    T_INT8 = 20,
    T_INT2 = 21,
    T_INT4 = 23,
    T_TEXT = 25,
    T_OID = 26,
    T_JSON = 114,
    T_FLOAT4 = 700,
    T_FLOAT8 = 701,
    T_BPCHAR = 1042,
    T_VARCHAR = 1043,
    T_DATE = 1082,
    T_TIME = 1083,
    T_TIMESTAMP = 1114,
    T_TIMESTAMPTZ = 1184,
    T_INTERVAL = 1186,
    T_TIMETZ = 1266,
    T_NUMERIC = 1700,
    T_UUID = 2950,
    T_XID = 28,
    T_CID = 29,
    T_MONEY = 790,
    T_PG_LSN = 3220,
    T_XID8 = 5069,
    T_REGPROC = 24,
    T_REGPROCEDURE = 2202,
    T_REGOPER = 2203,
    T_REGOPERATOR = 2204,
    T_REGCLASS = 2205,
    T_REGTYPE = 2206,
    T_REGCONFIG = 3734,
    T_REGDICTIONARY = 3769,
    T_REGNAMESPACE = 4089,
    T_REGROLE = 4096,
    T_REGCOLLATION = 4191,
};

#define NUMERIC_NEG 0x4000
#define NUMERIC_SPECIAL 0xC000 /* NaN; 0xD000 infinity, 0xF000 -infinity */
#define NUMERIC_SHORT 0x8000
#define NUMERIC_SHORT_NEG 0x2000
#define NUMERIC_DSCALE_MAX 0x3FFF

static uint16_t take_be16(struct cursor *c)
{
    return be16toh(cursor_u16(c));
}

static uint32_t take_be32(struct cursor *c)
{
    return be32toh(cursor_u32(c));
}

static void put_numeric_header(struct buf *out, int weight, unsigned sign, unsigned dscale)
{
    if (dscale <= 0x3f && weight >= -0x40 && weight <= 0x3f) {
        unsigned h = NUMERIC_SHORT | (sign == NUMERIC_NEG ? NUMERIC_SHORT_NEG : 0) | dscale << 7 |
                     ((unsigned)weight & 0x7f);
        buf_put_u16(out, (uint16_t)h);
        return;
    }
    buf_put_u16(out, (uint16_t)(sign | dscale));
    buf_put_u16(out, (uint16_t)weight);
}

/* ndigits, weight, sign, dscale, digits (base 10000): each 16 bits. The stored form has no leading
 * or trailing zero digits, and weight 0 for zero; the send form is taken from it and has neither.
 */
static void numeric_datum(struct cursor *c, struct buf *out)
{
    unsigned ndigits = take_be16(c);
    int weight = (int16_t)take_be16(c);
    unsigned sign = take_be16(c);
    unsigned dscale = take_be16(c);
    if ((sign & NUMERIC_SPECIAL) == NUMERIC_SPECIAL) {
        buf_put_u16(out, (uint16_t)sign);
        cursor_skip(c, cursor_left(c));
        return;
    }
    if (!cursor_ok(c) || cursor_left(c) != ndigits * 2u || dscale > NUMERIC_DSCALE_MAX ||
        (sign != 0 && sign != NUMERIC_NEG)) {
        c->failed = true;
        return;
    }
    put_numeric_header(out, weight, sign, dscale);
    for (unsigned i = 0; i < ndigits; i++)
        buf_put_u16(out, take_be16(c));
}

static void swap(struct cursor *c, unsigned width, struct buf *out)
{
    const uint8_t *at = cursor_take(c, width);
    for (unsigned i = width; at != NULL && i > 0; i--)
        buf_put_u8(out, at[i - 1]);
}

/* One element's send form. False: a type whose stored form cannot be made from it. */
static bool element_datum(Oid typid, struct cursor *c, struct buf *out)
{
    switch (typid) {
    case T_BOOL:
    case T_CHAR:
        swap(c, 1, out);
        return true;
    case T_INT2:
        swap(c, 2, out);
        return true;
    case T_INT4:
    case T_OID:
    case T_FLOAT4:
    case T_DATE:
    case T_XID:
    case T_CID:
    case T_REGPROC:
    case T_REGPROCEDURE:
    case T_REGOPER:
    case T_REGOPERATOR:
    case T_REGCLASS:
    case T_REGTYPE:
    case T_REGCONFIG:
    case T_REGDICTIONARY:
    case T_REGNAMESPACE:
    case T_REGROLE:
    case T_REGCOLLATION:
        swap(c, 4, out);
        return true;
    case T_INT8:
    case T_FLOAT8:
    case T_TIME:
    case T_TIMESTAMP:
    case T_TIMESTAMPTZ:
    case T_MONEY:
    case T_PG_LSN:
    case T_XID8:
        swap(c, 8, out);
        return true;
    case T_TIMETZ: /* time, zone */
        swap(c, 8, out);
        swap(c, 4, out);
        return true;
    case T_INTERVAL: /* time, day, month */
        swap(c, 8, out);
        swap(c, 4, out);
        swap(c, 4, out);
        return true;
    case T_NUMERIC:
        numeric_datum(c, out);
        return true;
    case T_UUID:
        buf_put(out, c->data + c->pos, cursor_left(c) == 16 ? 16 : 0);
        cursor_skip(c, 16);
        return true;
    case T_NAME: { /* fixed width, zero padded */
        size_t n = cursor_left(c);
        if (n >= NAMEDATALEN)
            c->failed = true;
        buf_put(out, c->data + c->pos, c->failed ? 0 : n);
        buf_put_zeros(out, c->failed ? 0 : NAMEDATALEN - n);
        cursor_skip(c, n);
        return true;
    }
    case T_BYTEA:
    case T_TEXT:
    case T_JSON:
    case T_BPCHAR:
    case T_VARCHAR:
        buf_put(out, c->data + c->pos, cursor_left(c));
        cursor_skip(c, cursor_left(c));
        return true;
    default:
        return false;
    }
}

enum status catalog_missing_datum(Oid base_typid, const uint8_t *array, size_t len, struct buf *out,
                                  bool *ret_known, struct error *err)
{
    struct cursor c = cursor_of(array, len);
    size_t before = out->len;
    uint32_t ndim = take_be32(&c);
    take_be32(&c); /* whether there are NULLs */
    take_be32(&c); /* element type: the domain itself where there is one */
    uint32_t n = take_be32(&c);
    take_be32(&c); /* lower bound */
    uint32_t element_len = take_be32(&c);
    if (!cursor_ok(&c) || ndim != 1 || n != 1 || element_len != cursor_left(&c))
        return error_set(err, ERR_DATA, "attmissingval of type %u is not an array of one value",
                         base_typid);
    *ret_known = element_datum(base_typid, &c, out);
    if (*ret_known && (!cursor_ok(&c) || cursor_left(&c) != 0)) {
        out->len = before;
        return error_set(err, ERR_DATA, "attmissingval of type %u has %u bytes", base_typid,
                         element_len);
    }
    return OK;
}

/* {value} or {"value"}, quotes and backslashes behind a backslash (array_out) */
bool catalog_missing_text(const char *array, size_t len, struct buf *out)
{
    if (len < 2 || array[0] != '{' || array[len - 1] != '}')
        return false;
    const char *at = array + 1, *end = array + len - 1;
    if (at < end && *at == '"') {
        at++;
        if (at == end || end[-1] != '"')
            return false;
        end--;
    }
    for (; at < end; at++) {
        if (*at == '\\' && ++at == end)
            return false;
        buf_put_u8(out, (uint8_t)*at);
    }
    return true;
}
