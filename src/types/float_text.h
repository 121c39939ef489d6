/* The shortest decimal text that reads back as the same float, in PostgreSQL's form (float4out and
 * float8out with extra_float_digits = 1). */
#pragma once
#include "base/buf.h"

void float4_text_put(float value, struct buf *out);
void float8_text_put(double value, struct buf *out);
