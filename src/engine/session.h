/* One client of the native protocol, from hello to goodbye, on a thread of its own. */
#pragma once
#include "engine/chdb.h"
#include "engine/fault.h"
#include "engine/insert.h"
#include "engine/peer.h"
#include "engine/settings.h"

#include <stdatomic.h>

#define ENGINE_SQL_MAX ((size_t)16 << 20)
#define ENGINE_BLOCK_MAX ((size_t)1 << 30) /* plain bytes of one block from a client */

/* What all sessions share; immutable but for the atomics. */
struct engine_shared {
    struct chdb *chdb;
    struct engine_settings_known settings;
    const char *user; /* NULL: "default" without a password */
    const char *password;
    struct engine_fault *fault;
    atomic_ulong generation; /* of table definitions: sample caches from before are stale */
    atomic_bool stopping;
};

enum engine_session_state {
    ENGINE_SESSION_IDLE,
    ENGINE_SESSION_BUSY,   /* may be cut off at shutdown */
    ENGINE_SESSION_INSERT, /* gets time to end */
};

struct engine_session {
    struct engine_shared *shared;
    struct engine_peer peer;
    bool read_only;
    uint64_t revision; /* 0 until the hello */
    struct buf database;
    struct chdb_session *db; /* NULL on a read-only session: each statement has its own */
    struct engine_settings settings;
    struct engine_sample_cache samples;
    struct block_reader reader;
    struct buf plain; /* of compressed blocks */
    bool compressed;  /* blocks of the current query */
    _Atomic enum engine_session_state state;
};

/* Serves the client until it leaves or breaks the protocol. The session is initialised with shared,
 * peer and read_only; everything else is zero. */
void engine_session_run(struct engine_session *s);
void engine_session_fini(struct engine_session *s);

/* True if the pair is accepted; the time taken does not depend on where they differ. */
bool engine_auth_check(const struct engine_shared *shared, struct str user, struct str password);
