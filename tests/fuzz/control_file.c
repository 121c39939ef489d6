#include "base/crc32c.h"
#include "pg/control_file.h"

#include <string.h>

/* As it is, and with the CRC made right, so that the fields are reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct control_file f;
    uint8_t copy[296] = {0};
    (void)!control_file_parse(data, size, &f, &err);
    memcpy(copy, data, size < sizeof copy ? size : sizeof copy);
    size_t at = copy[8] == 8 ? 292 : 288; /* 1800 is 0x0708 */
    uint32_t crc = crc32c(copy, at);
    memcpy(copy + at, &crc, 4);
    (void)!control_file_parse(copy, sizeof copy, &f, &err);
    return 0;
}
