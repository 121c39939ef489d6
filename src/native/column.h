/* Native column payloads seen from outside: where one ends, and its values as text.
 * Layout: clickhouse-notes B2 (state prefixes first, then data; nothing at all for 0 rows). */
#pragma once
#include "base/arena.h"
#include "base/cursor.h"
#include "native/type_name.h"

/* What a walk over bytes that keep arriving need not do twice: string runs already passed. Zero at
 * the start of each column; positions are those of the cursor, which must keep counting from the
 * same byte. */
struct column_walk_memo {
    struct {
        size_t start, pos;
        uint64_t row;
    } runs[8];
    unsigned nruns;
};

/* Moves c behind the payload (state prefixes and data) of `rows` rows. ERR_RETRY: the bytes end
 * before the payload does: c is unchanged, call again with more. ERR_DATA: malformed, or a type
 * whose layout is not known. Allocates nothing. */
enum status column_walk(const struct type_node *type, uint64_t rows, struct cursor *c,
                        struct error *err) CHECKED;

/* The same, remembering progress in *memo (may be NULL) between calls that returned ERR_RETRY. */
enum status column_walk_resume(const struct type_node *type, uint64_t rows, struct cursor *c,
                               struct column_walk_memo *memo, struct error *err) CHECKED;

/* The state prefixes of a column of this type, as a writer puts them before its data
 * (LowCardinality and JSON: u64 1 each, in type order). Nothing for a type without state. */
void column_prefix_put(const struct type_node *type, struct buf *out);

struct column_text {
    const char *data; /* NUL-terminated; NULL = SQL NULL */
    size_t len;
};

/* Reads `rows` values as text into ret[0 .. rows-1] (allocated by the caller, strings in the arena)
 * and moves c behind them; for small results. Integers to 64 bits, Bool, floats, Decimal to 38
 * digits, Date and time types (UTC), UUID, String, FixedString, Enum and Nullable or LowCardinality
 * of these. ERR_RETRY as column_walk; ERR_DATA: malformed or another type. */
enum status column_text_read(const struct type_node *type, uint64_t rows, struct cursor *c,
                             struct arena *arena, struct column_text *ret,
                             struct error *err) CHECKED;
