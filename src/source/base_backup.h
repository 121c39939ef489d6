/* BASE_BACKUP over a replication connection: one COPY stream of messages (notes F8).
 * Source: PostgreSQL documentation, "Streaming Replication Protocol", BASE_BACKUP; 15 to 18. */
#pragma once
#include "source/replication.h"

struct source_tablespace {
    Oid oid;          /* 0: the data directory itself */
    const char *path; /* "" for the data directory; the source's path, never to be used here (A1) */
    uint64_t bytes;   /* the server's estimate, rounded to KiB */
};

/* In this order: begin; then per archive: archive, data…; progress now and then; end. Any failure
 * of a callback ends the backup and is returned. NULL members are skipped. Pointers are valid
 * during the call only. */
struct source_backup_callbacks {
    void *ctx;
    enum status (*begin)(void *ctx, XLogRecPtr start_lsn, uint32_t timeline,
                         const struct source_tablespace *tablespaces, size_t n, struct error *err);
    /* A tar stream begins: name as the server gives it ("base.tar", "16385.tar"). The base archive
     * comes last; its pg_control is the last file but for tar padding. */
    enum status (*archive)(void *ctx, const char *name, Oid tablespace_oid, struct error *err);
    /* The bytes lie in memory that is the callee's, for source_backup_memory_free. */
    enum status (*data)(void *ctx, void *memory, const uint8_t *bytes, size_t len,
                        struct error *err);
    /* Bytes as the server counts them; total is its estimate and may be exceeded. */
    enum status (*progress)(void *ctx, uint64_t done, uint64_t total, struct error *err);
    enum status (*end)(void *ctx, XLogRecPtr end_lsn, struct error *err);
};

/* BASE_BACKUP (LABEL, PROGRESS, CHECKPOINT 'fast', WAIT false, MANIFEST 'no'), without WAL. With
 * TABLESPACE_MAP false: the base archive has no tablespace_map file but symbolic links below
 * pg_tblspc/, which must not be created (A1). Interrupted by source_repl_wake. After a failure the
 * connection must be closed. label: letters, digits, '_' and '-'. */
enum status source_base_backup_run(struct source_repl *r, const char *label,
                                   const struct source_backup_callbacks *callbacks,
                                   struct error *err) CHECKED;
void source_backup_memory_free(void *memory);
