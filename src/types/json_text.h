/* Pieces that jsonb and jsonpath share. */
#pragma once
#include "base/buf.h"

#include <stdbool.h>

/* A quoted JSON string, escaped as escape_json (utils/adt/json.c) does. */
void json_string_put(struct buf *out, const uint8_t *data, size_t len);

/* A numeric inside another datum, with its varlena header, in at most `left` bytes. False: damaged,
 * nothing appended. */
bool json_numeric_put(struct buf *out, const uint8_t *data, size_t left);
