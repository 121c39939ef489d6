/* jsonb and jsonpath: trees of offsets. */
#include "text_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const Oid typids[] = {3802, 4072};
    if (size == 0)
        return 0;
    const struct att_desc att = {.typid = typids[data[0] % LENGTH(typids)], .typmod = -1};
    fuzz_text_value(&att, data + 1, size - 1);
    return 0;
}
