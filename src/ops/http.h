/* The daemon's HTTP endpoint: /metrics /healthz /readyz /status; other paths go to the engine's
 * read-only HTTP interface, at most HTTP_PROXY_MAX at once so that they never hold up the first
 * four. */
#pragma once
#include "base/buf.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HTTP_PROXY_MAX 8

struct http_options {
    const char *host;            /* of http.bind */
    uint16_t port;               /* 0 = any */
    const char *user, *password; /* "" = none */
    void *ctx;
    json_t *(*status)(void *ctx);                    /* new reference */
    void (*metrics)(void *ctx, struct buf *out);     /* Prometheus text */
    bool (*ready)(void *ctx, char *why, size_t cap); /* false: why is the body of the 503 */
    /* Path of the engine's HTTP socket; false = there is none. NULL callback = never. */
    bool (*engine_socket)(void *ctx, char *path, size_t cap);
};

struct http_server;

/* ERR_CONFIG: address taken, bad host, not loopback without password. Strings are copied. */
enum status http_server_start(const struct http_options *options, struct http_server **ret,
                              struct error *err) CHECKED;
const char *
http_server_address(const struct http_server *server); /* "127.0.0.1:9484", the real port */
void http_server_stop(struct http_server *server);     /* NULL is fine */
