/* The chunks of one TOAST table by COPY from the source, as seeds for the chunk store. */
#pragma once
#include "base/buf.h"
#include "toast/store.h"

struct copy_chunks;

/* owner: the table whose TOAST table it is; lsn: of the seeds. Chunks that the store has from
 * before are forgotten: it has not followed what became of them. */
enum status copy_chunks_new(struct toast_store *store, Oid owner, XLogRecPtr lsn,
                            struct copy_chunks **ret, struct error *err) CHECKED;
/* The statement, appended; name: of the table in schema pg_toast. */
void copy_chunks_sql(const char *name, struct buf *out);
/* One message of it. */
enum status copy_chunks_put(struct copy_chunks *c, const uint8_t *data, size_t len,
                            struct error *err) CHECKED;
/* All is put. */
enum status copy_chunks_end(struct copy_chunks *c, struct error *err) CHECKED;
void copy_chunks_free(struct copy_chunks *c); /* NULL is fine */
