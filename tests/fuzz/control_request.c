/* Lines of the control socket, both ways. */
#include "ops/control_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    json_t *json = NULL;
    const char *verb;
    if (control_request_parse((const char *)data, size, &json, &verb, &err) == OK)
        json_decref(json);
    json = NULL;
    if (control_reply_parse((const char *)data, size, &json, &err) == OK)
        json_decref(json);
    return 0;
}
