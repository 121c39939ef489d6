/* Types of the system's own numbers: money, pg_lsn, snapshots, tid, xid, cid, xid8, int2vector,
 * oidvector, and the reg* types, which hold an oid and are carried as that: a name would be the
 * catalog's at another time. */
#include "types/family.h"

#include "base/bytes.h"

#include <stdlib.h>

static bool take_u32(const uint8_t *data, uint32_t len, uint32_t *ret)
{
    if (len != sizeof *ret)
        return false;
    memcpy(ret, data, sizeof *ret);
    return true;
}

static bool u32_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint32_t v;
    if (!take_u32(data, len, &v))
        return false;
    put_u64_text(out, v);
    return true;
}

static bool u64_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 8)
        return false;
    put_u64_text(out, u64_at(data));
    return true;
}

static void uint32_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "UInt32");
}

static bool plan_u32(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_UINT32)
        return false;
    e->append = encode_copy4;
    e->width = 4;
    return true;
}

static bool plan_u64(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_UINT64)
        return false;
    e->append = encode_copy8;
    e->width = 8;
    return true;
}

/* cash_out under lc_monetary C: two digits behind the point, groups of three, the sign first. */
static bool money_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    char text[40], *at = text + sizeof text;
    if (len != 8)
        return false;
    int64_t value = (int64_t)u64_at(data);
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    for (int digit = 0; digit < 3 || rest != 0; digit++) {
        if (digit == 2)
            *--at = '.';
        else if (digit > 2 && (digit - 2) % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    }
    *--at = '$';
    if (value < 0)
        *--at = '-';
    buf_put(out, at, (size_t)(text + sizeof text - at));
    return true;
}

static bool lsn_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 8)
        return false;
    uint64_t v = u64_at(data);
    buf_printf(out, "%X/%X", (uint32_t)(v >> 32), (uint32_t)v);
    return true;
}

/* block number in two halves, high first; line pointer */
static bool tid_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 6)
        return false;
    buf_printf(out, "(%u,%u)", (uint32_t)u16_at(data) << 16 | u16_at(data + 2), u16_at(data + 4));
    return true;
}

/* pg_snapshot of utils/adt/xid8funcs.c: count, xmin, xmax, xids in progress */
static bool snapshot_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint32_t n;
    if (len < 20 || (len - 20) % 8 != 0)
        return false;
    memcpy(&n, data, sizeof n);
    if ((len - 20) / 8 != n)
        return false;
    buf_printf(out, "%llu:%llu:", (unsigned long long)u64_at(data + 4),
               (unsigned long long)u64_at(data + 12));
    for (uint32_t i = 0; i < n; i++)
        buf_printf(out, i == 0 ? "%llu" : ",%llu",
                   (unsigned long long)u64_at(data + 20 + (size_t)i * 8));
    return true;
}

/* int2vector and oidvector are one-dimensional arrays without NULLs: dimensions, offset of data,
 * element type, length, lower bound, elements (c.h) */
static bool vector_elements(const uint8_t *data, uint32_t len, uint32_t width, Oid element,
                            uint32_t *ret)
{
    uint32_t head[4];
    if (len < 20)
        return false;
    memcpy(head, data, sizeof head);
    *ret = head[3];
    return head[0] == 1 && head[1] == 0 && head[2] == element && (len - 20) % width == 0 &&
           (len - 20) / width == head[3];
}

static bool int2vector_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint32_t n;
    if (!vector_elements(data, len, 2, 21, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        buf_printf(out, i == 0 ? "%d" : " %d", (int16_t)u16_at(data + 20 + (size_t)i * 2));
    return true;
}

static bool oidvector_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    uint32_t n, oid;
    if (!vector_elements(data, len, 4, 26, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&oid, data + 20 + (size_t)i * 4, sizeof oid);
        buf_printf(out, i == 0 ? "%u" : " %u", oid);
    }
    return true;
}

#define STRING_FAMILY(name, oid, length, plan_fn, text_fn)                                         \
    const struct type_family family_##name = {.typid = oid,                                        \
                                              .attlen = length,                                    \
                                              .default_type = type_default_string,                 \
                                              .plan = plan_fn,                                     \
                                              .text = text_fn}
STRING_FAMILY(money, 790, 8, NULL, money_text);
STRING_FAMILY(pg_lsn, 3220, 8, plan_u64, lsn_text);
STRING_FAMILY(pg_snapshot, 5038, -1, NULL, snapshot_text);
STRING_FAMILY(txid_snapshot, 2970, -1, NULL, snapshot_text);
STRING_FAMILY(tid, 27, 6, NULL, tid_text);
STRING_FAMILY(xid, 28, 4, plan_u32, u32_text);
STRING_FAMILY(cid, 29, 4, plan_u32, u32_text);
STRING_FAMILY(xid8, 5069, 8, plan_u64, u64_text);
STRING_FAMILY(int2vector, 22, -1, NULL, int2vector_text);
STRING_FAMILY(oidvector, 30, -1, NULL, oidvector_text);

#define REG_FAMILY(name, oid)                                                                      \
    const struct type_family family_##name = {.typid = oid,                                        \
                                              .attlen = 4,                                         \
                                              .default_type = uint32_default,                      \
                                              .plan = plan_u32,                                    \
                                              .text = u32_text}
REG_FAMILY(regproc, 24);
REG_FAMILY(regprocedure, 2202);
REG_FAMILY(regoper, 2203);
REG_FAMILY(regoperator, 2204);
REG_FAMILY(regclass, 2205);
REG_FAMILY(regtype, 2206);
REG_FAMILY(regconfig, 3734);
REG_FAMILY(regdictionary, 3769);
REG_FAMILY(regnamespace, 4089);
REG_FAMILY(regrole, 4096);
REG_FAMILY(regcollation, 4191);
