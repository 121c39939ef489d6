/* Any bytes as a datum of a type whose column is text: appended whole or refused. */
#pragma once
#include "types/encoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_text_value(const struct att_desc *att, const uint8_t *data, size_t size)
{
    const struct ch_caps caps = {.wide_dates = true, .time64 = true};
    struct column_buf out = {0};
    struct encoder e;
    const char *reason;
    CHECK(encoder_plan(att, true, "String", &caps, &e, NULL) == OK);
    if (e.append(&e, data, (uint32_t)size, &out, &reason) == ENCODE_BAD)
        CHECK(out.data.len == 0);
    else
        CHECK(out.data.len > 0);
    datum_text(att, data, (uint32_t)size, 100, &out.nulls);
    buf_free(&out.data);
    buf_free(&out.nulls);
    encoder_fini(&e);
}
