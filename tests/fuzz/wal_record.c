#include "pg/wal_parse.h"
#include "wal/classify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct wal_record r = {0};
    enum wal_route route;
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct wal_classifier *c = wal_classifier_new(18, 5, set);
    (void)!wal_record_parse_head(data, size < 1024 ? size : 1024, &r, &err);
    if (wal_record_parse(data, (uint32_t)size, &r, &err) == OK)
        (void)!wal_classify(c, &r, &route, &err);
    wal_classifier_free(c);
    catalog_filenodes_free(set);
    return 0;
}
