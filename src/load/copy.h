/* A table's rows by COPY from the source, as jobs for the pipeline's workers: what is asked for,
 * and how the bytes become rows of the fresh targets (docs/resync.md). */
#pragma once
#include "pipeline/resync.h"

struct copy;

/* For a copy that is open (resync_open). The acks are its own. ERR_CONFIG: a column cannot be
 * copied. */
enum status copy_new(struct resync *resync, struct copy **ret, struct error *err) CHECKED;
/* No job of it may be left: after copy_wait, or when the pipeline is closed. NULL is fine. */
void copy_free(struct copy *c);

size_t copy_parts(const struct copy *c);
/* A name as the source quotes it, appended. */
void copy_put_ident(const char *name, struct buf *out);
/* The COPY statement of one part, appended. */
void copy_sql(const struct copy *c, size_t part, struct buf *out);
/* One message of it: whole rows; the first one begins with the header. */
enum status copy_put(struct copy *c, size_t part, const uint8_t *data, size_t len,
                     struct error *err) CHECKED;
/* No more messages of this part. */
enum status copy_part_end(struct copy *c, size_t part, struct error *err) CHECKED;
/* Waits until every row that was put is durable (or discarded, once the copy is void). */
enum status copy_wait(struct copy *c, struct error *err) CHECKED;
/* Ends copy_wait with ERR_CANCELLED; from any thread. */
void copy_cancel(struct copy *c);
