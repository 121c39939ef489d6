/* Between the files that look at and change target tables (target_table.c, target_shape.c). */
#pragma once
#include "pipeline/tables.h"
#include "table/alter.h"

struct found_table {
    bool exists;
    char engine[64], comment[100], uuid[40];
    char sorting_key[1000], engine_full[1000]; /* cut: then they equal nothing */
    uint64_t rows;
};
enum status target_table_look(struct destination *d, const char *database, const char *table,
                              struct found_table *ret, struct error *err) CHECKED;
void target_full_name(struct buf *sql, const struct target *t); /* `db`.`table` */
/* The comment of a target of the same source database as `ours`. */
bool target_comment_is_ours(const char *comment, const char *ours);
/* The relation a comment of ours names. */
Oid target_comment_oid(const char *comment);
/* A retained table of a dropped source table gives up the name. */
enum status target_table_move_aside(struct destination *d, const struct target *t,
                                    const char *comment, XLogRecPtr lsn, struct error *err) CHECKED;

/* target_shape.c. ERR_CONFIG: it cannot be done, for the reason given. */
enum status target_table_columns(struct destination *d, const char *database, const char *table,
                                 struct found_columns *ret, struct error *err) CHECKED;
/* Where the target with this comment is, whatever its name; NULL if there is none. malloc'd. */
enum status target_table_locate(struct destination *d, const char *comment, char **ret_database,
                                char **ret_table, struct error *err) CHECKED;
struct target_rename {
    const char *comment; /* of the target */
    XLogRecPtr lsn;
    bool (*is_live)(void *ctx, Oid oid); /* the relation's rows are replicated */
    void *ctx;
};
/* The target with the comment, wherever it is, gets the name of `to`. */
enum status target_table_rename(struct destination *d, const struct target *to,
                                const struct target_rename *r, struct error *err) CHECKED;
/* The columns of a->to become those it names. */
enum status target_table_alter(struct destination *d, const struct target_alter *a,
                               struct error *err) CHECKED;
/* Drops it if it is there and carries the comment. */
enum status target_table_drop_ours(struct destination *d, const struct target *t,
                                   const char *comment, struct error *err) CHECKED;

/* target_survey.c: the tables whose comments begin so, and their columns, as they are now. */
struct target_survey;
enum status target_survey_take(struct destination *d, const char *comment_prefix,
                               struct target_survey **ret, struct error *err) CHECKED;
/* Columns of the table, if it was there with this comment; else NULL. Borrowed. NULL is fine for s.
 */
const struct found_columns *target_survey_find(const struct target_survey *s, const char *database,
                                               const char *table, const char *comment);
void target_survey_free(struct target_survey *s); /* NULL is fine */

/* target_view.c: the view beside a target, made anew; or dropped, if it is this target's. */
enum status target_view_make(struct destination *d, const struct target *t, const char *comment,
                             struct error *err) CHECKED;
enum status target_view_drop(struct destination *d, const struct target *t, const char *comment,
                             struct error *err) CHECKED;
