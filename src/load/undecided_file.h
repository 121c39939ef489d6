/* What is undecided at the end of the load, as a file: a restart goes on with it. */
#pragma once
#include "load/load.h"
#include "load/undecided.h"

/* Writes all of it, aside and synced, under `path`. ERR_RETRY if the disk refuses. */
enum status undecided_file_write(struct undecided *u, const char *path, struct error *err) CHECKED;
/* Puts what the file has back; tuples of relations that `find` does not know (NULL) are left out
 * and counted. ERR_DATA with file and offset where it is damaged. */
enum status undecided_file_read(struct undecided *u, const char *path,
                                struct load_rel *(*find)(void *ctx, Oid oid, bool chunks),
                                void *ctx, uint64_t *ret_left_out, struct error *err) CHECKED;
