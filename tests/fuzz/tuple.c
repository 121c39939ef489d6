#include "base/buf.h"
#include "pg/tuple.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tuple_att atts[] = {{4, 'i', false},  {2, 's', true},   {-1, 'i', false},
                                            {8, 'd', false},  {-2, 'c', false}, {-1, 'd', false},
                                            {16, 'c', false}, {1, 'c', false}};
    struct datum d[LENGTH(atts)];
    if (size < 5 || size > UINT16_MAX)
        return 0;
    struct raw_tuple t = {data[0], data[1], data[2], (uint32_t)size - 3, data + 3};
    struct tuple_shape *shape = tuple_shape_new(atts, LENGTH(atts));
    enum status status = tuple_deform(shape, &t, d, NULL);
    CHECK(status == tuple_check(shape, &t, NULL));
    for (unsigned i = 0; status == OK && i < LENGTH(atts); i++)
        CHECK(d[i].data == NULL || d[i].data + d[i].len <= data + size);
    tuple_shape_free(shape);
    return 0;
}
