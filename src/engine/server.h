/* The engine's process: listeners, sessions, HTTP, and how it ends. */
#pragma once
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_ADDRESSES_MAX 16
#define ENGINE_SESSIONS_DEFAULT 128

struct engine_options {
    const char *path;                         /* data directory */
    const char *libchdb;                      /* NULL: found, see chdb.h */
    uint64_t memory_max;                      /* bytes, 0 = default */
    const char *listen[ENGINE_ADDRESSES_MAX]; /* unix:PATH or tcp:HOST:PORT, may write */
    unsigned nlisten;
    const char *read_only_listen[ENGINE_ADDRESSES_MAX];
    unsigned nread_only;
    const char *http[ENGINE_ADDRESSES_MAX]; /* unix:PATH or HOST:PORT, read-only */
    unsigned nhttp;
    const char *user;     /* NULL: user "default" without a password */
    const char *password; /* "" = none */
    int control_fd;       /* the engine leaves when this reads EOF; -1 = none */
    unsigned sessions_max;
    unsigned lock_wait_s;
    const char *fault; /* NULL = none, see fault.h */
};

/* Serves until SIGTERM, SIGINT or the end of the control pipe. Once it listens it prints one line
 * "ready" with the addresses in use to stdout (port 0 is filled in). Running inserts get 5 s to
 * end. Returns after every engine connection is closed; the caller must leave with _exit. */
enum status engine_serve(const struct engine_options *options, struct error *err) CHECKED;
