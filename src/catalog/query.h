/* Catalog rows to descriptors: the SELECTs that work on 15 to 18, over a libpq connection given.
 *
 * The connection's client encoding must equal the server encoding (names and missing values are
 * taken in the database's encoding), its search_path must not matter (every name is qualified).
 * Calls run in the transaction that is open, or in a REPEATABLE READ, READ ONLY one of their own. A
 * broken connection is ERR_RETRY, an unexpected answer ERR_DATA. */
#pragma once
#include "base/error.h"
#include "catalog/descriptor.h"

#include <libpq-fe.h>

/* Of a pg_index row i: no column of the key can hold NULL. 18 lets one whose NOT NULL is NOT VALID
 * be the replica identity (F7). */
#define CATALOG_KEY_IS_NOT_NULL                                                                    \
    "NOT EXISTS (SELECT FROM pg_catalog.pg_constraint x WHERE x.conrelid = i.indrelid AND "        \
    "x.contype = 'n' AND NOT x.convalidated AND x.conkey[1] = ANY "                                \
    "((i.indkey::pg_catalog.int2[])[:i.indnkeyatts - 1]))"

/* Descriptors of the relations named (kinds r, p, m, t; temporary ones left out: they are never in
 * the WAL), or with oids NULL of every one that is not a system relation (oid >= 16384), in oid
 * order, sealed. A relation that is gone is absent. *ret is a malloc'd array of *ret_n references
 * owned by the caller. valid_from is 0.
 *
 * What a type is made of (type_desc.h) comes with the relation, in its `types`.
 *
 * Domains: type_name names the domain; base_typid, elem_typid, typcategory and typmod are those of
 * the base type. missing holds the datum as a heap tuple has it, for bool, "char", int2/4/8, oid,
 * float4/8, numeric, text, varchar, bpchar, name, bytea, json, date, time, timetz, timestamp,
 * timestamptz, interval, uuid, money, pg_lsn, xid, cid, xid8 and reg* (and domains over them); for
 * any other type it is the text form, and missing_is_text is set. */
enum status catalog_query_read(PGconn *conn, unsigned major, const Oid *oids, size_t noids,
                               struct rel_desc ***ret, size_t *ret_n, struct error *err) CHECKED;
/* Which partitioned tables are none here: each of their leaves is a table of its own. */
struct catalog_split {
    bool (*is_split)(void *ctx, const char *schema, const char *table);
    void *ctx;
};
/* The same with the leaves of such tables as roots of their own. */
enum status catalog_query_read_split(PGconn *conn, unsigned major,
                                     const struct catalog_split *split, const Oid *oids,
                                     size_t noids, struct rel_desc ***ret, size_t *ret_n,
                                     struct error *err) CHECKED;
void catalog_query_free(struct rel_desc **descs, size_t n); /* drops the references and the array */

struct catalog_filenode {
    Oid oid;
    struct rel_file_locator locator; /* db_oid 0 for shared relations */
};
/* The oid of every temporary relation of any kind, appended to oids. */
enum status catalog_query_temporary(PGconn *conn, struct buf *oids, struct error *err) CHECKED;

/* Storage of every relation of kind r, i, t, m, S with oid < 16384, mapped and shared ones
 * included, without pg_largeobject and its index (data, not catalog: C11). The seed of C1. *ret is
 * malloc'd. */
enum status catalog_query_filenodes(PGconn *conn, struct catalog_filenode **ret, size_t *ret_n,
                                    struct error *err) CHECKED;

struct catalog_database {
    Oid oid;
    Oid spc_oid; /* dattablespace */
    int encoding;
    char encoding_name[NAMEDATALEN]; /* "UTF8", "SQL_ASCII" … */
    char name[NAMEDATALEN];
    char collate[128]; /* datcollate, truncated */
};
/* The database the connection is in. */
enum status catalog_query_database(PGconn *conn, struct catalog_database *ret,
                                   struct error *err) CHECKED;

/* The text form of one attmissingval from the text of its one-element array, appended to out.
 * False: it is none. */
bool catalog_missing_text(const char *array, size_t len, struct buf *out);

/* The datum of one attmissingval from array_send's bytes of its one-element array: appends what a
 * heap tuple has (no varlena header) to out. *ret_known is false for types not in the list above.
 */
enum status catalog_missing_datum(Oid base_typid, const uint8_t *array, size_t len, struct buf *out,
                                  bool *ret_known, struct error *err) CHECKED;
