/* VACUUM FULL and CLUSTER write a table anew as whole pages, of which the WAL has nothing but their
 * images (notes B7, B8). Those of a table without a key, whose rows are known by their place, are
 * read as INSERTs of the transaction that rewrites it. Owned by the pump. */
#pragma once
#include "catalog/history.h"
#include "pg/change.h"
#include "pump/class_row.h"

struct rewrites;

/* history may be NULL: nothing is read then. */
struct rewrites *rewrites_new(struct history *history);
void rewrites_free(struct rewrites *r);
/* A relation was made: it may be the new file of one that is rewritten. True if what will be in it
 * is a user's; false for a catalog's. */
bool rewrites_row(struct rewrites *r, const struct class_row *row);
/* An XLOG_FPI record of our database. Calls emit for each row of its pages. *ret_read false: they
 * are not read, all of them or in part, whatever was emitted. emit's failure is returned. */
enum status rewrites_pages(struct rewrites *r, const struct wal_record *record, change_fn emit,
                           void *ctx, bool *ret_read, struct error *err) CHECKED;
