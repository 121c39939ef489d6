#include "types/float_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put_shortest(double value, bool single, struct buf *out)
{
    char text[64];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    buf_put(out, text, strlen(text));
}

void float4_text_put(float value, struct buf *out)
{
    put_shortest((double)value, true, out);
}

void float8_text_put(double value, struct buf *out)
{
    put_shortest(value, false, out);
}
