/* A shape change carried to a table that has rows: what the destination has and what it is to have,
 * compared; the next ALTER statement that brings one nearer to the other.
 *
 * Nothing is remembered between statements: each is derived from the columns found, so that a
 * statement of which it is not known whether it was run, and a change that a kill cut in two, are
 * taken up where they are. Columns are known by their names; one that was added here, and all of
 * them before names change hands, carry the source column's number in their COMMENT:
 * `walshadow 3`. */
#pragma once
#include "table/target.h"

struct found_column {
    char *name, *type, *comment;
};
struct found_columns {
    struct found_column *items;
    size_t n, cap;
};
/* Takes the strings. */
void found_columns_add(struct found_columns *f, char *name, char *type, char *comment);
void found_columns_fini(struct found_columns *f);

struct target_alter {
    const struct target *from, *to; /* as rows were sent until now, and from now on */
    /* per mapped column of `to`: the attribute that says which value the rows have that were there
     * before the column was (has_missing), NULL for none; asked for added columns only */
    const struct att_desc *const *added;
};

/* Types that the columns behind the attributes 1 … n have at the destination, NULL where there is
 * none: for target_options.stored_types. Borrowed from found. */
void target_stored_types(const struct target *from, const struct found_columns *found,
                         const char **ret, size_t n);

/* Appends the next statement to ret; nothing if the table is as it is to be. ERR_CONFIG: it cannot
 * be made so exactly; the message says why. */
enum status target_alter_next(const struct target_alter *a, const struct found_columns *found,
                              struct buf *ret, struct error *err) CHECKED;

/* The DEFAULT expression that gives exactly what the encoder makes of the attribute's missing
 * value; nothing appended if it has none. False: no such expression is known. */
bool target_default_sql(const struct target_column *col, const struct att_desc *att,
                        struct buf *out);
