/* Keeps one embedded engine (`walshadow engine`) running: starts it, restarts it when it dies,
 * stops it. A thread of its own does so, which is also the parent that the child's death signal is
 * tied to. */
#pragma once
#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

struct ch_supervisor_options {
    const char *engine_bin;       /* the program; its verb is "engine" */
    const char *path;             /* the engine's data directory */
    const char *listen;           /* path of the unix socket the daemon talks to */
    const char *read_only_listen; /* "HOST:PORT" for ClickHouse clients; NULL or "" = none */
    const char *http;             /* path of the unix socket for HTTP; NULL = none */
    const char *libchdb;          /* path of libchdb.so; NULL or "" = the engine finds it */
    uint64_t memory_max;          /* bytes; 0 = the engine's default */
    const char *log_prefix;       /* child=… of its log lines; NULL = "engine" */
    unsigned stop_ms;             /* SIGTERM to SIGKILL; 0 = 10 s */
    const char *const *extra;     /* further arguments, NULL-terminated; NULL = none */
};

struct ch_supervisor;

/* Starts the thread and returns; the engine comes up in the background (options are copied).
 * Connecting fails with ERR_RETRY until it answers; ch_supervisor_wait waits. */
enum status ch_supervisor_start(const struct ch_supervisor_options *options,
                                struct ch_supervisor **ret, struct error *err) CHECKED;

/* Waits until the engine answers a hello. Goes on as long as there is progress: no limit of its own
 * while the process lives. Fails (ERR_RETRY, with the engine's last words) once it has died
 * `attempts` times in a row without answering, and with ERR_CANCELLED after ch_supervisor_stop or
 * ch_supervisor_interrupt. */
enum status ch_supervisor_wait(struct ch_supervisor *s, unsigned attempts,
                               struct error *err) CHECKED;

/* From another thread: ends ch_supervisor_wait, now and later. The engine runs on. */
void ch_supervisor_interrupt(struct ch_supervisor *s);

/* SIGTERM, then SIGKILL; joins the thread; frees. NULL is fine. Not while another thread waits. */
void ch_supervisor_stop(struct ch_supervisor *s);

/* Thread-safe. pid 0 = not running now; restarts counts starts after the first. */
pid_t ch_supervisor_pid(struct ch_supervisor *s);
unsigned ch_supervisor_restarts(struct ch_supervisor *s);
/* What holds things up, for waiting_on: "" when the engine answers, else "engine: starting, 3 s",
 * "engine: exit code 1 (…), restart 2 in 4 s". Returns buf. */
const char *ch_supervisor_state(struct ch_supervisor *s, char *buf, size_t cap);
