/* Bits, addresses, geometry, snapshots, vectors, xml: counts and lengths. */
#include "text_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const Oid typids[] = {1560, 1562, 869, 650, 829,  774,  600, 601, 602,  603, 604,
                                 628,  718,  142, 790, 3220, 5038, 27,  28,  5069, 22,  30};
    if (size == 0)
        return 0;
    const struct att_desc att = {.typid = typids[data[0] % LENGTH(typids)], .typmod = -1};
    fuzz_text_value(&att, data + 1, size - 1);
    return 0;
}
