/* bit, varbit: a 32-bit count of bits, then the bits, highest first (utils/varbit.h). */
#include "types/family.h"

static bool bits_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    int32_t nbits;
    if (len < sizeof nbits)
        return false;
    memcpy(&nbits, data, sizeof nbits);
    if (nbits < 0 || ((uint32_t)nbits + 7) / 8 != len - sizeof nbits)
        return false;
    const uint8_t *bits = data + sizeof nbits;
    uint8_t *at = buf_reserve(out, (size_t)nbits + 1);
    for (uint32_t i = 0; i < (uint32_t)nbits; i++)
        at[i] = (uint8_t)('0' + (bits[i >> 3] >> (7 - (i & 7)) & 1));
    out->len += (size_t)nbits;
    return true;
}

const struct type_family family_bit = {
    .typid = 1560, .attlen = -1, .default_type = type_default_string, .text = bits_text};
const struct type_family family_varbit = {
    .typid = 1562, .attlen = -1, .default_type = type_default_string, .text = bits_text};
