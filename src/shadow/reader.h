/* Catalog reads on the shadow: a SQL session on its socket. One thread at a time. */
#pragma once
#include "catalog/query.h"
#include "pg/pg.h"

struct shadow_reader;

struct shadow_reader_options {
    const char *socket_dir; /* shadow_socket_dir */
    unsigned port;          /* 0 = SHADOW_POSTGRES_PORT */
    const char *database;
    const char *login_role;
    bool login_superuser;
    unsigned major;
    const struct catalog_split *split; /* NULL: no table is; outlives the reader */
};

/* Does not connect: the first read does, and any later one again after the connection was lost. */
struct shadow_reader *shadow_reader_new(const struct shadow_reader_options *options);
void shadow_reader_free(struct shadow_reader *r); /* NULL is fine */

/* Reads that follow succeed only while pg_last_wal_replay_lsn() is at least min_lsn and, unless
 * max_lsn is 0, at most max_lsn, before and after the read: below is ERR_RETRY, beyond is ERR_BUG
 * ("the shadow has replayed past the boundary"). 0, 0 = no check (the default). */
void shadow_reader_expect(struct shadow_reader *r, XLogRecPtr min_lsn, XLogRecPtr max_lsn);

/* A catalog_read_fn; ctx is the struct shadow_reader. */
enum status shadow_reader_read(void *ctx, const Oid *oids, size_t noids, struct rel_desc ***ret,
                               size_t *ret_n, struct error *err) CHECKED;
enum status shadow_reader_replay_lsn(struct shadow_reader *r, XLogRecPtr *ret,
                                     struct error *err) CHECKED;
