#include "clickhouse/sql_quote.h"

static void put_escaped(struct buf *out, char quote, const char *text)
{
    buf_put_u8(out, (uint8_t)quote);
    for (; *text != 0; text++) {
        if (*text == quote || *text == '\\')
            buf_put_u8(out, '\\');
        buf_put_u8(out, (uint8_t)*text);
    }
    buf_put_u8(out, (uint8_t)quote);
}

void sql_quote_ident(struct buf *out, const char *name)
{
    put_escaped(out, '`', name);
}

void sql_quote_string(struct buf *out, const char *text)
{
    put_escaped(out, '\'', text);
}
