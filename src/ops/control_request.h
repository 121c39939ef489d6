/* The control protocol's texts, shared by server, client and fuzzing. */
#pragma once
#include "base/error.h"

#include <jansson.h>

/* One line without its newline. *ret_body: new reference to an object with a "verb" of 1 to 32
 * characters. ERR_DATA otherwise. */
enum status control_request_parse(const char *line, size_t len, json_t **ret_body,
                                  const char **ret_verb, struct error *err) CHECKED;
/* A reply line: OK with its result, or the failure it carries (kind and text). */
enum status control_reply_parse(const char *line, size_t len, json_t **ret_result,
                                struct error *err) CHECKED;
/* malloc'd, with the newline. result is consumed and may be NULL. */
char *control_reply_render(enum status st, json_t *result, const struct error *err);
