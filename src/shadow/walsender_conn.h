/* One standby's connection. Private to this folder. */
#pragma once
#include "base/buf.h"
#include "base/stream.h"
#include "shadow/walsender.h"

#include <pthread.h>
#include <stdatomic.h>

struct shadow_walsender {
    struct shadow_walsender_options options; /* socket_dir is our own copy */
    char *socket_path;
    int listen_fd;
    int stop_fd; /* eventfd: readable = stop accepting */
    pthread_t accept_thread;

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t moved; /* a position, a connection's state or `cancelled` changed */
    struct walsender_conn *conns;
    unsigned nconns, nstreaming;
    XLogRecPtr applied, flushed;
    bool stopping, cancelled;

    /* What wait_applied waits for (the highest): a sender that has sent through it asks the standby
     * for a reply. 0 = nobody waits. */
    atomic_uint_fast64_t wanted;
    atomic_uint_fast64_t rows_first_until; /* ns; nothing is sent before */
    unsigned waiters;
};

struct walsender_conn {
    struct walsender_conn *next;
    struct shadow_walsender *ws;
    pthread_t thread;
    pid_t peer;
    bool finished;        /* its thread is about to return; ws->lock */
    struct stream out;    /* the sender's; reads commands while nothing streams */
    struct stream in;     /* the receiver's, the same socket */
    bool streaming;       /* ws->lock */
    XLogRecPtr sent;      /* ws->lock */
    char application[64]; /* for the log */

    atomic_bool asked;    /* the standby wants a keepalive */
    atomic_bool copy_end; /* the receiver has ended: CopyDone, or the peer is gone */
    bool copy_done;       /* it was CopyDone; read after the receiver was joined */
};

/* The thread of a connection: argument and ownership of the struct stay with the walsender. */
void *walsender_conn_main(void *conn);

/* Positions from a standby status update. */
void shadow_walsender_note(struct shadow_walsender *ws, XLogRecPtr flushed, XLogRecPtr applied);

/* Sends b and empties it. */
enum status walsender_flush(struct walsender_conn *c, struct buf *b, struct error *err) CHECKED;
/* Tells the peer that the connection ends because of err; returns err->kind. */
enum status walsender_refuse(struct walsender_conn *c, const char *sqlstate, struct error *err);
/* walsender_login.c: startup packets, encryption declined, the greeting. */
enum status walsender_log_in(struct walsender_conn *c, struct error *err) CHECKED;
/* walsender_answer.c: whole answers, without ReadyForQuery. */
void walsender_identify_system(struct walsender_conn *c, struct buf *b);
void walsender_show(struct walsender_conn *c, const char *name, struct buf *b);
void walsender_timeline_history(struct walsender_conn *c, uint32_t timeline, struct buf *b);
void walsender_read_slot(struct buf *b);
