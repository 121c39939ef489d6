/* What the files of the catalog queries share. */
#pragma once
#include "catalog/query.h"

/* One statement with at most one text parameter; an answer of `columns` columns, or none (0). */
enum status catalog_query_run(PGconn *conn, const char *sql, const char *param, const char *what,
                              int columns, PGresult **ret, struct error *err) CHECKED;
Oid catalog_query_oid(const PGresult *r, int row, int column); /* NULL: 0 */

/* Reads what the columns' types are made of (type_desc.h) into descs[i]->types, in the transaction
 * that is open. */
enum status catalog_query_types(PGconn *conn, struct rel_desc **descs, size_t n,
                                struct error *err) CHECKED;
