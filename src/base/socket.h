/* Sockets: connect, listen, accept. Descriptors are close-on-exec and non-blocking. */
#pragma once
#include "base/stream.h"

#define SOCKET_ADDRESS_MAX 300

/* An address of the form unix:PATH, tcp:HOST:PORT or HOST:PORT ([::1]:9000 for IPv6). */
struct socket_address {
    bool is_unix;
    char path[SOCKET_ADDRESS_MAX]; /* unix */
    char host[256];
    uint16_t port; /* 0 = any (listen) */
};
enum status socket_address_parse(const char *text, struct socket_address *ret,
                                 struct error *err) CHECKED;

/* Connects within the deadline, trying every address of the host. A refused or unreachable peer is
 * ERR_RETRY, a name that cannot exist ERR_CONFIG. */
enum status socket_connect_tcp(const char *host, uint16_t port, uint64_t deadline_ns,
                               struct stream *ret, struct error *err) CHECKED;
enum status socket_connect_unix(const char *path, uint64_t deadline_ns, struct stream *ret,
                                struct error *err) CHECKED;

/* A listening descriptor. unix: mode 0600; a socket file that nobody listens on is replaced, one in
 * use is ERR_CONFIG. tcp: *ret_port (may be NULL) is the port bound. */
enum status socket_listen(const struct socket_address *address, int *ret_fd, uint16_t *ret_port,
                          struct error *err) CHECKED;

/* Waits for one connection. wake_fd (or -1): readable = ERR_CANCELLED. */
enum status socket_accept(int listen_fd, int wake_fd, struct stream *ret,
                          struct error *err) CHECKED;

/* Whether someone accepts connections at a unix socket. */
bool socket_unix_is_alive(const char *path);
