/* control.sock: newline-delimited JSON. A request is {"verb":"…", …}; its reply
 * {"ok":true,"result":…} or
 * {"ok":false,"kind":"config","error":"…"}. Each connection has a thread of its own, so a handler
 * may block (wait); mode 0600.
 *
 * Verbs and what they take and give:
 *   status  {}                            → the status report (status.h)
 *   wait    {"lsn":"0/…"?,"timeout_ms":N?} →
 * {"reached":bool,"lsn":"0/…","stopped":[{"name","reason"}…]} pause, resume, reload, stop  {} → {}
 * (reload may answer {"note":"…"}) resync  {"table":"s.t"} → {"table":"s.t"}: asked for; status
 * tells the rest
 */
#pragma once
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define CONTROL_REQUEST_MAX (64 * 1024)
#define CONTROL_CLIENTS_MAX 64

struct control_request {
    const char *verb;
    const json_t *body; /* the whole request object; borrowed */
    struct control_client *client;
};

/* Runs in the connection's thread. *ret_result: new reference, NULL = {}. A failure's text and kind
 * go to the client. A handler that blocks must register control_request_on_cancel. */
typedef enum status (*control_handler_fn)(void *ctx, const struct control_request *request,
                                          json_t **ret_result, struct error *err);

struct control_verb {
    const char *name;
    control_handler_fn handler;
};

struct control_server;

/* Replaces a socket file nobody listens on. verbs is copied. ERR_CONFIG when another process
 * answers on the path or it cannot be made. */
enum status control_server_start(const char *path, const struct control_verb *verbs, size_t nverbs,
                                 void *ctx, struct control_server **ret, struct error *err) CHECKED;
/* Cancels running handlers, waits for their threads, removes the socket file. NULL is fine. */
void control_server_stop(struct control_server *server);

/* fn(arg) is called once, from the server's own thread, when the client hangs up or the server
 * stops; at once if that has happened. NULL fn withdraws it; after the withdrawal returns fn is not
 * running. */
void control_request_on_cancel(const struct control_request *request, void (*fn)(void *arg),
                               void *arg);
bool control_request_is_cancelled(const struct control_request *request);

/* Client: one request, one reply. timeout_ms -1 = none. ERR_RETRY if no daemon answers on path; the
 * daemon's own failure comes back with its kind and text. *ret_result is a new reference. */
enum status control_call(const char *path, const json_t *request, int timeout_ms,
                         json_t **ret_result, struct error *err) CHECKED;
