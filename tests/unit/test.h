/* What every unit test includes: cmocka with the headers it wants before it. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"

/* Asserts that a fallible call succeeded and prints its error if it did not. */
#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        enum status status_ = (expr);                                                              \
        if (status_ != OK)                                                                         \
            fail_msg("%s: %s", #expr, err.message);                                                \
    } while (0)
