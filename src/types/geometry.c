/* point, lseg, path, box, polygon, line, circle: float8 coordinates.
 * Source: utils/geo_decls.h (structs), path_encode of utils/adt/geo_ops.c; the same in 15 to 18. */
#include "types/family.h"
#include "types/float_text.h"

#define POINT_BYTES 16u

static void put_float(const uint8_t *data, struct buf *out)
{
    double value;
    memcpy(&value, data, sizeof value);
    float8_text_put(value, out);
}

static void put_pair(const uint8_t *data, struct buf *out)
{
    put_float(data, out);
    buf_put_u8(out, ',');
    put_float(data + 8, out);
}

/* (x,y),(x,y)… */
static void put_points(const uint8_t *data, uint32_t n, struct buf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        put_text(out, i == 0 ? "(" : ",(");
        put_pair(data + (size_t)i * POINT_BYTES, out);
        buf_put_u8(out, ')');
    }
}

static bool point_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != POINT_BYTES)
        return false;
    put_points(data, 1, out);
    return true;
}

static bool lseg_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 2 * POINT_BYTES)
        return false;
    buf_put_u8(out, '[');
    put_points(data, 2, out);
    buf_put_u8(out, ']');
    return true;
}

static bool box_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 2 * POINT_BYTES)
        return false;
    put_points(data, 2, out);
    return true;
}

static bool line_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 24)
        return false;
    buf_put_u8(out, '{');
    put_pair(data, out);
    buf_put_u8(out, ',');
    put_float(data + 16, out);
    buf_put_u8(out, '}');
    return true;
}

static bool circle_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 24)
        return false;
    buf_put_u8(out, '<');
    put_points(data, 1, out);
    buf_put_u8(out, ',');
    put_float(data + 16, out);
    buf_put_u8(out, '>');
    return true;
}

/* The count at the begin must be what lies behind the fixed part. */
static bool point_count(const uint8_t *data, uint32_t len, uint32_t fixed, uint32_t *ret)
{
    if (len < fixed)
        return false;
    memcpy(ret, data, sizeof *ret);
    return (len - fixed) % POINT_BYTES == 0 && (len - fixed) / POINT_BYTES == *ret;
}

/* npts, closed, padding, points */
static bool path_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint32_t n, closed;
    if (!point_count(data, len, 12, &n))
        return false;
    memcpy(&closed, data + 4, sizeof closed);
    buf_put_u8(out, closed != 0 ? '(' : '[');
    put_points(data + 12, n, out);
    buf_put_u8(out, closed != 0 ? ')' : ']');
    return true;
}

/* npts, bounding box, points */
static bool polygon_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint32_t n;
    if (!point_count(data, len, 4 + 2 * POINT_BYTES, &n))
        return false;
    buf_put_u8(out, '(');
    put_points(data + 4 + 2 * POINT_BYTES, n, out);
    buf_put_u8(out, ')');
    return true;
}

#define GEOMETRY_FAMILY(name, oid, length)                                                         \
    const struct type_family family_##name = {                                                     \
        .typid = oid, .attlen = length, .default_type = type_default_string, .text = name##_text}
GEOMETRY_FAMILY(point, 600, 16);
GEOMETRY_FAMILY(lseg, 601, 32);
GEOMETRY_FAMILY(path, 602, -1);
GEOMETRY_FAMILY(box, 603, 32);
GEOMETRY_FAMILY(polygon, 604, -1);
GEOMETRY_FAMILY(line, 628, 24);
GEOMETRY_FAMILY(circle, 718, 24);
