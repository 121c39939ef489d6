/* Values of a received column as text, for small results. */
#include "native/column.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct text_reader {
    struct cursor c; /* over bytes that column_walk has accepted */
    struct arena *arena;
    struct buf scratch;
    struct error *err;
};

static enum status read_values(struct text_reader *r, const struct type_node *type, uint64_t rows,
                               struct column_text *ret);

static struct column_text keep_text(struct text_reader *r, const void *data, size_t len)
{
    char *text = arena_alloc(r->arena, len + 1);
    if (len > 0)
        memcpy(text, data, len);
    text[len] = 0;
    return (struct column_text){text, len};
}

/* Little-endian integer of 1 to 16 bytes, sign-extended. */
static __int128 read_signed(const uint8_t *at, uint32_t width)
{
    unsigned __int128 v = 0;
    memcpy(&v, at, width);
    unsigned shift = 8 * (16 - width);
    return (__int128)(v << shift) >> shift;
}

static void put_decimal(struct buf *out, __int128 value, unsigned scale)
{
    unsigned __int128 rest = value < 0 ? 0 - (unsigned __int128)value : (unsigned __int128)value;
    char digits[64];
    unsigned n = 0;
    while (rest > 0 || n <= scale) {
        /* from the right: `scale` digits, the point, the others */
        unsigned at = n + (scale > 0 && n >= scale ? 1 : 0);
        digits[sizeof digits - 1 - at] = (char)('0' + (unsigned)(rest % 10));
        rest /= 10;
        n++;
    }
    digits[sizeof digits - 1 - scale] = scale > 0 ? '.' : digits[sizeof digits - 1];
    unsigned len = n + (scale > 0 ? 1 : 0);
    if (value < 0)
        buf_put_u8(out, '-');
    buf_put(out, digits + sizeof digits - len, len);
}

/* Ticks since 1970-01-01 of 10^-precision seconds; without a day part for Time64. */
static void put_ticks(struct buf *out, int64_t ticks, unsigned precision, bool date)
{
    int64_t unit = 1;
    for (unsigned i = 0; i < precision; i++)
        unit *= 10;
    bool minus = !date && ticks < 0;
    int64_t seconds = ticks / unit, fraction = ticks % unit;
    if (minus) {
        seconds = -seconds;
        fraction = -fraction;
    } else if (fraction < 0) {
        seconds--;
        fraction += unit;
    }
    struct tm tm;
    time_t when = (time_t)seconds;
    if (date && gmtime_r(&when, &tm) != NULL)
        buf_printf(out, "%04d-%02d-%02d %02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    else
        buf_printf(out, "%s%02" PRId64 ":%02d:%02d", minus ? "-" : "", seconds / 3600,
                   (int)(seconds / 60 % 60), (int)(seconds % 60));
    if (precision > 0)
        buf_printf(out, ".%0*" PRId64, (int)precision, fraction);
}

static void put_date(struct buf *out, int64_t days)
{
    struct tm tm = {0};
    time_t when = (time_t)(days * 86400);
    if (gmtime_r(&when, &tm) != NULL)
        buf_printf(out, "%04d-%02d-%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
}

/* The shortest of 15 to 17 (6 to 9) digits that reads back the same. */
static void put_float(struct buf *out, const uint8_t *at, bool single)
{
    float f = 0;
    double d = 0;
    char text[40];
    if (single)
        memcpy(&f, at, sizeof f);
    else
        memcpy(&d, at, sizeof d);
    if (single)
        d = (double)f;
    for (int digits = single ? 6 : 15; digits <= (single ? 9 : 17); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (single ? strtof(text, NULL) == f : strtod(text, NULL) == d)
            break;
    }
    buf_put(out, text, strlen(text));
}

static void put_uuid(struct buf *out, const uint8_t *at)
{
    uint64_t high, low;
    memcpy(&high, at, sizeof high);
    memcpy(&low, at + 8, sizeof low);
    buf_printf(out, "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
               high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & 0xffffffffffff);
}

static void put_address(struct buf *out, const uint8_t *at, bool v6)
{
    char text[INET6_ADDRSTRLEN];
    uint32_t v4;
    memcpy(&v4, at, sizeof v4);
    v4 = htonl(v4); /* sent little-endian, inet_ntop wants network order */
    if (inet_ntop(v6 ? AF_INET6 : AF_INET, v6 ? (const void *)at : &v4, text, sizeof text) != NULL)
        buf_put(out, text, strlen(text));
}

static void put_member(struct buf *out, const struct type_node *type, int value)
{
    for (unsigned i = 0; i < type->nmembers; i++) {
        if (type->members[i].value == value) {
            buf_put(out, type->members[i].name, strlen(type->members[i].name));
            return;
        }
    }
    buf_printf(out, "%d", value);
}

/* One value of a fixed-width type; false: a type that has no text here. */
static bool put_fixed(struct buf *out, const struct type_node *type, const uint8_t *at)
{
    int64_t v = type->width <= 8 ? (int64_t)read_signed(at, type->width) : 0;
    uint64_t u = 0;
    memcpy(&u, at, MIN(type->width, sizeof u));
    switch (type->kind) {
    case TYPE_BOOL:
        buf_printf(out, "%s", u != 0 ? "true" : "false");
        return true;
    case TYPE_INT8:
    case TYPE_INT16:
    case TYPE_INT32:
    case TYPE_INT64:
    case TYPE_INTERVAL:
        buf_printf(out, "%" PRId64, v);
        return true;
    case TYPE_UINT8:
    case TYPE_UINT16:
    case TYPE_UINT32:
    case TYPE_UINT64:
        buf_printf(out, "%" PRIu64, u);
        return true;
    case TYPE_FLOAT32:
    case TYPE_FLOAT64:
        put_float(out, at, type->kind == TYPE_FLOAT32);
        return true;
    case TYPE_INT128:
    case TYPE_DECIMAL:
        if (type->width > 16)
            return false;
        put_decimal(out, read_signed(at, type->width), type->scale);
        return true;
    case TYPE_DATE:
    case TYPE_DATE32:
        put_date(out, type->kind == TYPE_DATE ? (int64_t)u : v);
        return true;
    case TYPE_DATETIME:
    case TYPE_DATETIME64:
        put_ticks(out, type->kind == TYPE_DATETIME ? (int64_t)u : v, type->precision, true);
        return true;
    case TYPE_TIME:
    case TYPE_TIME64:
        put_ticks(out, v, type->precision, false);
        return true;
    case TYPE_UUID:
        put_uuid(out, at);
        return true;
    case TYPE_IPV4:
    case TYPE_IPV6:
        put_address(out, at, type->kind == TYPE_IPV6);
        return true;
    case TYPE_FIXED_STRING:
        buf_put(out, at, type->width);
        return true;
    case TYPE_ENUM8:
    case TYPE_ENUM16:
        put_member(out, type, (int)v);
        return true;
    case TYPE_NOTHING:
        return true;
    case TYPE_UNKNOWN:
    case TYPE_INT256:
    case TYPE_UINT128:
    case TYPE_UINT256:
    case TYPE_BFLOAT16:
    case TYPE_STRING:
    case TYPE_NULLABLE:
    case TYPE_LOW_CARDINALITY:
    case TYPE_ARRAY:
    case TYPE_MAP:
    case TYPE_TUPLE:
    case TYPE_JSON:
    case TYPE_SIMPLE_AGGREGATE:
        return false;
    }
    return false;
}

static enum status no_text(struct text_reader *r, const struct type_node *type)
{
    return error_set(r->err, ERR_DATA, "values of type %s cannot be read as text", type->name);
}

static enum status read_fixed(struct text_reader *r, const struct type_node *type, uint64_t rows,
                              struct column_text *ret)
{
    for (uint64_t i = 0; i < rows; i++) {
        buf_reset(&r->scratch);
        if (!put_fixed(&r->scratch, type, cursor_take(&r->c, type->width)))
            return no_text(r, type);
        ret[i] = keep_text(r, r->scratch.data, r->scratch.len);
    }
    return OK;
}

static void read_strings(struct text_reader *r, uint64_t rows, struct column_text *ret)
{
    for (uint64_t i = 0; i < rows; i++) {
        size_t len = (size_t)cursor_varint(&r->c);
        ret[i] = keep_text(r, cursor_take(&r->c, len), len);
    }
}

static enum status read_nullable(struct text_reader *r, const struct type_node *type, uint64_t rows,
                                 struct column_text *ret)
{
    const uint8_t *nulls = cursor_take(&r->c, (size_t)rows);
    TRY(read_values(r, type->children[0], rows, ret));
    for (uint64_t i = 0; i < rows; i++)
        if (nulls[i] != 0)
            ret[i] = (struct column_text){NULL, 0};
    return OK;
}

/* One dictionary with its indices; *ret_rows of them. */
static enum status read_dictionary(struct text_reader *r, const struct type_node *type,
                                   struct column_text *ret, uint64_t *ret_rows)
{
    const struct type_node *inner = type->children[0];
    bool nullable = inner->kind == TYPE_NULLABLE;
    uint64_t flags = cursor_u64(&r->c), keys = (flags & 0x200) != 0 ? cursor_u64(&r->c) : 0;
    size_t index_width = (size_t)1 << (flags & 0xff);
    struct column_text *texts = arena_alloc(r->arena, (size_t)keys * sizeof *texts);
    TRY(read_values(r, nullable ? inner->children[0] : inner, keys, texts));
    if (nullable && keys > 0)
        texts[0] = (struct column_text){NULL, 0};
    *ret_rows = cursor_u64(&r->c);
    for (uint64_t i = 0; i < *ret_rows; i++) {
        uint64_t index = 0;
        memcpy(&index, cursor_take(&r->c, index_width), index_width);
        if (index >= keys)
            return error_set(r->err, ERR_DATA, "LowCardinality: index past the dictionary");
        ret[i] = texts[index];
    }
    return OK;
}

static enum status read_values(struct text_reader *r, const struct type_node *type, uint64_t rows,
                               struct column_text *ret)
{
    if (type->width > 0)
        return read_fixed(r, type, rows, ret);
    if (type->kind == TYPE_NULLABLE)
        return read_nullable(r, type, rows, ret);
    if (type->kind == TYPE_SIMPLE_AGGREGATE)
        return read_values(r, type->children[0], rows, ret);
    if (type->kind == TYPE_LOW_CARDINALITY) {
        for (uint64_t done = 0, n; done < rows; done += n)
            TRY(read_dictionary(r, type, ret + done, &n));
        return OK;
    }
    if (type->kind != TYPE_STRING && type->kind != TYPE_JSON)
        return no_text(r, type);
    read_strings(r, rows, ret);
    return OK;
}

enum status column_text_read(const struct type_node *type, uint64_t rows, struct cursor *c,
                             struct arena *arena, struct column_text *ret, struct error *err)
{
    size_t start = c->pos;
    if (rows == 0)
        return OK;
    /* afterwards every length is known to be inside the bytes */
    TRY(column_walk(type, rows, c, err));
    struct text_reader r = {*c, arena, {0}, err};
    r.c.pos = start;
    for (const struct type_node *t = type; t != NULL;
         t = t->nchildren == 1 ? t->children[0] : NULL) {
        if (t->kind == TYPE_LOW_CARDINALITY || t->kind == TYPE_JSON) {
            cursor_skip(&r.c, sizeof(uint64_t)); /* the state prefix */
            break;
        }
    }
    enum status status = read_values(&r, type, rows, ret);
    buf_free(&r.scratch);
    if (status != OK)
        c->pos = start;
    return status;
}
