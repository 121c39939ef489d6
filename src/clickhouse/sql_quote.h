/* Names and text in ClickHouse's SQL. */
#pragma once
#include "base/buf.h"

/* Appended to out. */
void sql_quote_ident(struct buf *out, const char *name);  /* `a\`b` */
void sql_quote_string(struct buf *out, const char *text); /* 'a\'b' */
