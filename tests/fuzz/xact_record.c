#include "pg/standby_record.h"
#include "pg/xact_record.h"

/* First byte: xl_info; the rest: main data. Every list is walked to its end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct xact_record x;
    struct wal_record r = {.rmid = RM_XACT_ID, .info = size > 0 ? data[0] : 0};
    r.main_data = data + 1;
    r.main_len = size > 0 ? (uint32_t)size - 1 : 0;
    for (unsigned major = 15; major <= 18; major += 3)
        if (xact_record_parse(&r, major, &x, &err) == OK)
            for (uint32_t i = 0; i < x.invals.count; i++)
                (void)inval_list_get(&x.invals, i);
    return 0;
}
