#include "native/column.h"

/* No String of ClickHouse is longer (SIZE_LIMIT of its reader), so a longer length is damage. */
#define MAX_STRING_BYTES (UINT64_C(16) << 30)

/* LowCardinality: what the flags word of a dictionary may hold */
#define LC_VERSION 1u
#define LC_INDEX_WIDTH_MASK 0xffu /* log2 of the index width */
#define LC_GLOBAL_DICTIONARY 0x100u
#define LC_ADDITIONAL_KEYS 0x200u
#define LC_UPDATE_DICTIONARY 0x400u
#define JSON_STRING_VERSION 1u

struct walk {
    struct cursor *c;
    struct column_walk_memo *memo; /* or NULL */
    unsigned run;                  /* string runs met so far */
    struct error *err;
};

static enum status walk_data(struct walk *w, const struct type_node *type, uint64_t rows);

static enum status need_more(struct walk *w)
{
    return error_set(w->err, ERR_RETRY, "the column's bytes are not complete yet");
}

static enum status walk_u64(struct walk *w, uint64_t *ret)
{
    if (cursor_left(w->c) < sizeof *ret)
        return need_more(w);
    *ret = cursor_u64(w->c);
    return OK;
}

/* n values of `width` bytes */
static enum status walk_fixed(struct walk *w, uint64_t n, uint64_t width)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n, width, &bytes) || bytes > SIZE_MAX / 2)
        return error_set(w->err, ERR_DATA, "a column of %llu rows is too large",
                         (unsigned long long)n);
    if (cursor_left(w->c) < bytes)
        return need_more(w);
    cursor_skip(w->c, (size_t)bytes);
    return OK;
}

/* A varint at *pos; returns false where the bytes end first. More than 10 bytes give UINT64_MAX. */
static bool read_varint(const struct cursor *c, size_t *pos, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 10; i++) {
        if (*pos >= c->len)
            return false;
        uint8_t byte = c->data[(*pos)++];
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *ret = v;
            return true;
        }
    }
    *ret = UINT64_MAX;
    return true;
}

static enum status walk_strings(struct walk *w, uint64_t rows)
{
    struct cursor *c = w->c;
    size_t start = c->pos, pos = start;
    uint64_t row = 0;
    unsigned run = w->run++;
    bool kept = w->memo != NULL && run < LENGTH(w->memo->runs);
    if (kept && run < w->memo->nruns && w->memo->runs[run].start == start) {
        pos = w->memo->runs[run].pos;
        row = w->memo->runs[run].row;
    }
    for (; row < rows; row++) {
        size_t at = pos;
        uint64_t n;
        bool complete = read_varint(c, &at, &n);
        if (complete && n > MAX_STRING_BYTES)
            return error_set(w->err, ERR_DATA, "a string of %llu bytes is too long",
                             (unsigned long long)n);
        if (!complete || n > c->len - at)
            break;
        pos = at + (size_t)n;
    }
    if (kept) {
        w->memo->runs[run].start = start;
        w->memo->runs[run].pos = pos;
        w->memo->runs[run].row = row;
        w->memo->nruns = MAX(w->memo->nruns, run + 1);
    }
    if (row < rows)
        return need_more(w);
    c->pos = pos;
    return OK;
}

/* Cumulative end offsets: the last one is the number of elements. */
static enum status walk_offsets(struct walk *w, uint64_t rows, uint64_t *ret_elements)
{
    *ret_elements = 0;
    if (rows == 0)
        return OK;
    TRY(walk_fixed(w, rows, sizeof *ret_elements));
    memcpy(ret_elements, w->c->data + w->c->pos - sizeof *ret_elements, sizeof *ret_elements);
    return OK;
}

static const struct type_node *dictionary_type(const struct type_node *type)
{
    const struct type_node *keys = type->children[0];
    return keys->kind == TYPE_NULLABLE ? keys->children[0] : keys;
}

/* Dictionaries with their indices until all rows are there (a writer makes one per block). */
static enum status walk_low_cardinality(struct walk *w, const struct type_node *type, uint64_t rows)
{
    while (rows > 0) {
        uint64_t flags, keys, indices;
        TRY(walk_u64(w, &flags));
        if ((flags & LC_INDEX_WIDTH_MASK) > 3 || (flags & LC_GLOBAL_DICTIONARY) != 0 ||
            (flags &
             ~(uint64_t)(LC_INDEX_WIDTH_MASK | LC_ADDITIONAL_KEYS | LC_UPDATE_DICTIONARY)) != 0)
            return error_set(w->err, ERR_DATA, "LowCardinality: unknown flags 0x%llx",
                             (unsigned long long)flags);
        if (flags & LC_ADDITIONAL_KEYS) {
            TRY(walk_u64(w, &keys));
            TRY(walk_data(w, dictionary_type(type), keys));
        }
        TRY(walk_u64(w, &indices));
        if (indices == 0 || indices > rows)
            return error_set(w->err, ERR_DATA, "LowCardinality: %llu indices for %llu rows",
                             (unsigned long long)indices, (unsigned long long)rows);
        TRY(walk_fixed(w, indices, UINT64_C(1) << (flags & LC_INDEX_WIDTH_MASK)));
        rows -= indices;
    }
    return OK;
}

static enum status layout_unknown(struct walk *w, const struct type_node *type)
{
    struct buf text CLEANUP_BUF = {0};
    type_name_print(type, &text);
    return error_set(w->err, ERR_DATA, "the layout of type %.200s is not known", buf_cstr(&text));
}

static enum status walk_nested(struct walk *w, const struct type_node *type, uint64_t rows)
{
    if (type->kind == TYPE_NULLABLE)
        TRY(walk_fixed(w, rows, 1));
    if (type->kind == TYPE_ARRAY || type->kind == TYPE_MAP)
        TRY(walk_offsets(w, rows, &rows));
    if (type->nchildren == 0)
        return layout_unknown(w, type);
    for (unsigned i = 0; i < type->nchildren; i++)
        TRY(walk_data(w, type->children[i], rows));
    return OK;
}

static enum status walk_data(struct walk *w, const struct type_node *type, uint64_t rows)
{
    if (type->width > 0)
        return walk_fixed(w, rows, type->width);
    if (type->kind == TYPE_STRING || type->kind == TYPE_JSON)
        return walk_strings(w, rows);
    if (type->kind == TYPE_LOW_CARDINALITY)
        return walk_low_cardinality(w, type, rows);
    return walk_nested(w, type, rows);
}

/* State prefixes come before all data, in type order. */
static enum status walk_prefix(struct walk *w, const struct type_node *type)
{
    uint64_t version;
    if (type->kind == TYPE_LOW_CARDINALITY || type->kind == TYPE_JSON) {
        TRY(walk_u64(w, &version));
        if (version != (type->kind == TYPE_JSON ? JSON_STRING_VERSION : LC_VERSION))
            return error_set(w->err, ERR_DATA, "%s: unknown serialization version %llu", type->name,
                             (unsigned long long)version);
        return OK;
    }
    for (unsigned i = 0; i < type->nchildren; i++)
        TRY(walk_prefix(w, type->children[i]));
    return OK;
}

enum status column_walk_resume(const struct type_node *type, uint64_t rows, struct cursor *c,
                               struct column_walk_memo *memo, struct error *err)
{
    struct walk w = {c, memo, 0, err};
    size_t start = c->pos;
    if (rows == 0)
        return OK;
    enum status status = walk_prefix(&w, type);
    if (status == OK)
        status = walk_data(&w, type, rows);
    if (status != OK)
        c->pos = start;
    return status;
}

enum status column_walk(const struct type_node *type, uint64_t rows, struct cursor *c,
                        struct error *err)
{
    return column_walk_resume(type, rows, c, NULL, err);
}

void column_prefix_put(const struct type_node *type, struct buf *out)
{
    if (type->kind == TYPE_LOW_CARDINALITY)
        buf_put_u64(out, LC_VERSION);
    else if (type->kind == TYPE_JSON)
        buf_put_u64(out, JSON_STRING_VERSION);
    else
        for (unsigned i = 0; i < type->nchildren; i++)
            column_prefix_put(type->children[i], out);
}
