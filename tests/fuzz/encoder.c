/* Any bytes as a datum of any carried type: appended whole or refused; then rendered as text. */
#include "types/encoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const Oid typids[] = {16,  17,   18,   19,   20,   21,   23,   25,   26,   114,  700,
                                 701, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266, 1700, 2950};
    const struct ch_caps caps = {.wide_dates = true, .time64 = true};
    if (size < 2)
        return 0;
    struct att_desc att = {.typid = typids[data[0] % LENGTH(typids)], .typmod = data[1] % 8 - 1};
    struct column_buf out = {0};
    struct encoder e;
    const char *text;
    att.typmod += att.typid == 1700 && data[1] >= 8 ? (data[1] / 2 << 16) + 4 : 0;
    if (encoder_plan(&att, false, data[1] > 200 ? "Nullable(String)" : NULL, &caps, &e, NULL) != OK)
        return 0;
    if (e.append(&e, data + 2, (uint32_t)size - 2, &out, &text) == ENCODE_BAD) {
        CHECK(out.data.len == 0 && out.nulls.len == 0);
        encoder_append_bad(&e, BAD_VALUE_CLAMP, data + 2, (uint32_t)size - 2, &out, &text);
    }
    CHECK(out.nulls.len == 1 && (e.width > 0 ? out.data.len == e.width : out.data.len > 0));
    datum_text(&att, data + 2, (uint32_t)size - 2, 100, &out.nulls);
    buf_free(&out.data);
    buf_free(&out.nulls);
    encoder_fini(&e);
    return 0;
}
