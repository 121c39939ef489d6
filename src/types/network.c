/* inet, cidr, macaddr, macaddr8.
 * Source: inet_struct of utils/inet.h; the text rules of inet_out, cidr_out (network.c) and of
 * inet_net_ntop: the same in 15 to 18. */
#include "types/family.h"

#define PGSQL_AF_INET 2
#define PGSQL_AF_INET6 3
#define WORDS 8

static const char hex_digits[] = "0123456789abcdef";

static char *put_decimal(char *at, unsigned value) /* below 1000 */
{
    if (value >= 100)
        *at++ = (char)('0' + value / 100);
    if (value >= 10)
        *at++ = (char)('0' + value / 10 % 10);
    *at++ = (char)('0' + value % 10);
    return at;
}

static char *put_word(char *at, unsigned value)
{
    bool shown = false;
    for (int shift = 12; shift >= 0; shift -= 4) {
        unsigned digit = value >> shift & 15;
        shown = shown || digit != 0 || shift == 0;
        if (shown)
            *at++ = hex_digits[digit];
    }
    return at;
}

static char *put_ipv4(char *at, const uint8_t *address)
{
    for (unsigned i = 0; i < 4; i++) {
        if (i > 0)
            *at++ = '.';
        at = put_decimal(at, address[i]);
    }
    return at;
}

/* The first longest run of at least two zero words is "::". */
static void longest_zero_run(const unsigned *words, unsigned *ret_start, unsigned *ret_len)
{
    *ret_start = WORDS;
    *ret_len = 1;
    for (unsigned i = 0; i < WORDS; i++) {
        unsigned n = 0;
        while (i + n < WORDS && words[i + n] == 0)
            n++;
        if (n > *ret_len) {
            *ret_start = i;
            *ret_len = n;
        }
        i += n;
    }
    if (*ret_start == WORDS)
        *ret_len = 0;
}

static char *put_ipv6(char *at, const uint8_t *address)
{
    unsigned words[WORDS], run, run_len;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = (unsigned)address[2 * i] << 8 | address[2 * i + 1];
    longest_zero_run(words, &run, &run_len);
    /* ::1.2.3.4 and ::ffff:1.2.3.4 end as IPv4 does; ::1 does not */
    bool mapped = run == 0 && (run_len == 6 || (run_len == 7 && words[7] != 1) ||
                               (run_len == 5 && words[5] == 0xffff));
    for (unsigned i = 0; i < WORDS; i++) {
        if (i >= run && i < run + run_len) {
            if (i == run)
                *at++ = ':';
            continue;
        }
        if (i != 0)
            *at++ = ':';
        if (i == 6 && mapped)
            return put_ipv4(at, address + 12);
        at = put_word(at, words[i]);
    }
    if (run_len > 0 && run + run_len == WORDS)
        *at++ = ':';
    return at;
}

/* family, bits of the mask, address */
static bool network_text(const uint8_t *data, uint32_t len, bool always_mask, struct buf *out)
{
    char text[64], *at = text;
    bool v4 = len == 6 && data[0] == PGSQL_AF_INET;
    if (!v4 && !(len == 18 && data[0] == PGSQL_AF_INET6))
        return false;
    unsigned bits = data[1], whole = v4 ? 32 : 128;
    if (bits > whole)
        return false;
    at = v4 ? put_ipv4(at, data + 2) : put_ipv6(at, data + 2);
    if (always_mask || bits != whole) {
        *at++ = '/';
        at = put_decimal(at, bits);
    }
    buf_put(out, text, (size_t)(at - text));
    return true;
}

/* IPv4 is a little-endian number, IPv6 the 16 bytes as they are sent. A network is neither. */
static enum encode_result encode_ip(const struct encoder *e, const uint8_t *data, uint32_t len,
                                    struct column_buf *out, const char **ret_reason)
{
    uint32_t number;
    if (len != (e->width == 4 ? 6u : 18u) ||
        data[0] != (e->width == 4 ? PGSQL_AF_INET : PGSQL_AF_INET6))
        return encode_bad(ret_reason, "an address of the other family, or none");
    if (data[1] != e->width * 8)
        return encode_bad(ret_reason, "the address has a netmask");
    if (e->width == 4) {
        memcpy(&number, data + 2, sizeof number);
        buf_put_u32(&out->data, __builtin_bswap32(number));
    } else {
        buf_put(&out->data, data + 2, 16);
    }
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool plan_inet(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_IPV4 && target->kind != TYPE_IPV6)
        return false;
    e->append = encode_ip;
    e->width = target->kind == TYPE_IPV4 ? 4 : 16;
    return true;
}

static bool inet_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    return network_text(data, len, false, out);
}

static bool cidr_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    return network_text(data, len, true, out);
}

static void put_mac(const uint8_t *data, unsigned n, struct buf *out)
{
    uint8_t *at = buf_reserve(out, (size_t)n * 3);
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            *at++ = ':';
        *at++ = (uint8_t)hex_digits[data[i] >> 4];
        *at++ = (uint8_t)hex_digits[data[i] & 15];
    }
    out->len += (size_t)n * 3 - 1;
}

static bool macaddr_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 6)
        return false;
    put_mac(data, 6, out);
    return true;
}

static bool macaddr8_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 8)
        return false;
    put_mac(data, 8, out);
    return true;
}

const struct type_family family_inet = {.typid = 869,
                                        .attlen = -1,
                                        .default_type = type_default_string,
                                        .plan = plan_inet,
                                        .text = inet_text};
const struct type_family family_cidr = {
    .typid = 650, .attlen = -1, .default_type = type_default_string, .text = cidr_text};
const struct type_family family_macaddr = {
    .typid = 829, .attlen = 6, .default_type = type_default_string, .text = macaddr_text};
const struct type_family family_macaddr8 = {
    .typid = 774, .attlen = 8, .default_type = type_default_string, .text = macaddr8_text};
