/* What the read-only rule must know of a statement beyond what ClickHouse's classification tells.
 *
 * libchdb runs as the embedded kind of engine, in which the function file() reads any file of the
 * host and readonly=1 does not forbid it; and DESCRIBE of a table function fetches what it names.
 */
#pragma once
#include "engine/sql.h"

struct sql_reader_facts {
    bool selects;      /* begins with SELECT, WITH, FROM or '(' */
    bool names_things; /* begins with DESCRIBE name, EXISTS or SHOW CREATE: holds no expressions */
    bool fetches; /* DESCRIBE of something else than a plain name or a SELECT, and EXPLAIN TABLE */
    /* The function may be called. False only when that is sure: our lexer is not ClickHouse's, so
     * it is believed only on text that leaves no room for doubt (ASCII without comments, escapes,
     * heredocs). */
    bool may_call_file;
};

void sql_reader_facts_read(const char *sql, size_t len, struct sql_reader_facts *ret);
