#include "load/tar_split.h"

static const uint8_t *input;
static size_t input_len;
static enum status take(void *ctx, const uint8_t **ret, size_t *ret_len, struct error *err)
{
    (void)ctx, (void)err, *ret = input, *ret_len = input_len, input_len = 0;
    return OK;
}
static bool yes(void *ctx, struct rel_file_locator l)
{
    return (void)ctx, l.rel_number & 1;
}
static bool no(void *ctx, struct rel_file_locator l)
{
    return (void)ctx, (void)l, false;
}
static enum status begin(void *c, struct rel_file_locator l, uint32_t s, uint64_t n,
                         struct error *e)
{
    return (void)c, (void)l, (void)s, (void)n, (void)e, OK;
}
static enum status data_of(void *c, const uint8_t *b, size_t n, struct error *e)
{
    return (void)c, (void)b, (void)n, (void)e, OK;
}
static enum status end(void *ctx, struct error *err)
{
    return (void)ctx, (void)err, OK;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tar_split split = {
        {5, 1663, NULL, no, yes}, NULL, NULL, take, begin, data_of, end};
    input = data, input_len = size;
    enum status got = tar_split_run(&split, size & 1 ? 16999 : 0, NULL);
    return got == OK ? 0 : 0;
}
