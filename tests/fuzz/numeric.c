/* On-disk numeric: two bytes choose precision and scale, the rest is the datum. */
#include "types/numeric.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct numeric n;
    if (size < 2 || size > UINT32_MAX || !numeric_parse(data + 2, (uint32_t)size - 2, &n))
        return 0;
    struct buf text CLEANUP_BUF = {0};
    struct decimal d, max;
    unsigned precision = data[0] % 76u + 1, scale = data[1] % (precision + 1);
    numeric_text_put(&n, &text);
    CHECK(text.len > 0 && text.len <= 131072 + 16383 + 2);
    if (n.kind == NUMERIC_FINITE && numeric_to_decimal(&n, precision, scale, &d) == DECIMAL_OK)
        CHECK(numeric_to_decimal(&n, 76, scale, &max) == DECIMAL_OK &&
              memcmp(&d, &max, sizeof d) == 0);
    return 0;
}
