/* Arrays, ranges, multiranges, composites and enums, of each other. */
#include "fuzz_types.h"
#include "text_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct type_closure *types;
    if (types == NULL)
        types = fuzz_types_new();
    if (size == 0)
        return 0;
    const struct att_desc att = {
        .typid = FUZZ_TYPE_FIRST + data[0] % FUZZ_TYPES, .typmod = -1, .types = types};
    fuzz_text_value(&att, data + 1, size - 1);
    return 0;
}
