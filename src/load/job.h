/* The load's work for the pipeline's workers: pages become rows of the targets. */
#pragma once
#include "load/load.h"
#include "pipeline/pipeline.h"

struct load_jobs;

/* acks: one per destination, of the load alone; lsn: the value of _lsn (the backup's start - 1),
 * and of the chunks, which go to the pipeline's chunk store. keeps_chunks: as load_options.chunks.
 */
struct load_jobs *load_jobs_new(struct pipeline *pipeline, struct load *load,
                                struct ack *const *acks, XLogRecPtr lsn, bool keeps_chunks);
void load_jobs_free(struct load_jobs *j); /* after the last job has run; NULL is fine */
/* A relation that is loaded gets its route; before the first batch. */
void load_jobs_add(struct load_jobs *j, struct rel_desc *desc);
/* load_options.submit */
enum status load_jobs_submit(struct load_jobs *j, struct page_batch *batch,
                             struct error *err) CHECKED;
