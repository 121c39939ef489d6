/* The TOML parser: any bytes give a document or one error. */
#include "config/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct toml_doc *doc = NULL;
    if (size > 65536)
        return 0;
    if (toml_parse("fuzz", (const char *)data, size, &doc, &err) == OK)
        toml_doc_free(doc);
    return 0;
}
