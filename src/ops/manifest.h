/* manifest.toml: what a restart needs. Written as one atomic file at each status interval, read
 * with the TOML parser. A missing file is a first start; a newer version, damage or another
 * cluster's identity is an error by name. */
#pragma once
#include "base/error.h"
#include "base/lsn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_VERSION 1

enum manifest_load_state {
    MANIFEST_LOAD_NONE,     /* no load was ever begun */
    MANIFEST_LOAD_STARTED,  /* begun and not finished: its targets and shadow are to be discarded */
    MANIFEST_LOAD_WAITING,  /* usable too; rows that wait for the end of older transactions are in a
                               file of their own */
    MANIFEST_LOAD_COMPLETE, /* the shadow and the targets are usable */
};

struct manifest_ack {
    char *destination;
    XLogRecPtr lsn; /* commits ending at or below it are durable there */
};

/* A target table the load has begun to fill. */
struct manifest_target {
    char *destination, *database, *table;
};

struct manifest {
    XLogRecPtr floor; /* segment-aligned; where a restart reads from */
    uint64_t system_id;
    uint32_t timeline;
    uint32_t database_oid; /* of the replicated database */
    char *slot;            /* NULL = not known */
    char *split;           /* tables with partitions = "leaf", one a line; NULL = none */
    struct {
        XLogRecPtr source_received, filter_durable, shadow_replay, drain, emitter_ack, shadow_flush;
    } lsn;
    struct manifest_ack *acks; /* one per destination, saved together with the floor */
    size_t nacks;
    struct {
        enum manifest_load_state state;
        XLogRecPtr start_lsn, end_lsn; /* of the base backup; end 0 until complete */
        uint64_t next_xid;             /* full xid of the backup's checkpoint */
        struct manifest_target *targets;
        size_t ntargets;
    } load;
};

void manifest_fini(struct manifest *m); /* frees what it points to, zeroes it */
void manifest_copy(const struct manifest *from,
                   struct manifest *ret); /* deep; ret is overwritten */

/* Ack of a destination; 0 if it has none. manifest_ack_set adds it when missing. */
XLogRecPtr manifest_ack_get(const struct manifest *m, const char *destination);
void manifest_ack_set(struct manifest *m, const char *destination, XLogRecPtr lsn);
void manifest_target_add(struct manifest *m, const char *destination, const char *database,
                         const char *table);

/* Temporary name, fsync, rename, directory fsync. ERR_RETRY with errno when the disk refuses. */
enum status manifest_save(const struct manifest *m, const char *path, struct error *err) CHECKED;

/* *ret_found false and OK if there is no file. Otherwise ret is filled, or ERR_DATA (damage),
 * ERR_CONFIG (newer version). ret is zeroed first and needs manifest_fini after success only. */
enum status manifest_load(const char *path, struct manifest *ret, bool *ret_found,
                          struct error *err) CHECKED;

/* ERR_CONFIG if the state directory belongs to another cluster or timeline, with the remedy. With
 * ignore_cursor another timeline of the same cluster passes. */
enum status manifest_identity_check(const struct manifest *m, uint64_t system_id, uint32_t timeline,
                                    bool ignore_cursor, struct error *err) CHECKED;
