#include "base/socket.h"
#include "base/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FLAGS (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)

static enum status parse_host_port(const char *text, struct socket_address *ret, struct error *err)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (colon == NULL || colon[1] == '\0')
        return error_set(err, ERR_CONFIG, "address \"%s\": want unix:PATH or HOST:PORT", text);
    errno = 0;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || colon[1] < '0' || colon[1] > '9' || errno != 0 || port > 65535)
        return error_set(err, ERR_CONFIG, "address \"%s\": \"%s\" is not a port", text, colon + 1);
    size_t len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    }
    if (len >= sizeof ret->host)
        return error_set(err, ERR_CONFIG, "the host name of an address is too long");
    memcpy(ret->host, text, len);
    ret->host[len] = '\0';
    ret->port = (uint16_t)port;
    return OK;
}

enum status socket_address_parse(const char *text, struct socket_address *ret, struct error *err)
{
    struct socket_address a = {0};
    if (strncmp(text, "unix:", 5) == 0) {
        struct sockaddr_un limit;
        a.is_unix = true;
        if (text[5] == '\0' || strlen(text + 5) >= sizeof limit.sun_path)
            return error_set(err, ERR_CONFIG, "address \"%s\": a socket's path has 1 to %zu bytes",
                             text, sizeof limit.sun_path - 1);
        snprintf(a.path, sizeof a.path, "%s", text + 5);
    } else {
        TRY(parse_host_port(strncmp(text, "tcp:", 4) == 0 ? text + 4 : text, &a, err));
    }
    *ret = a;
    return OK;
}

/* Waits for a non-blocking connect to end; errno is set on failure. */
static int finish_connect(int fd, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        uint64_t now = clock_now_ns();
        int timeout = -1;
        if (deadline_ns != STREAM_NO_DEADLINE)
            timeout =
                deadline_ns <= now ? 0 : (int)MIN((deadline_ns - now) / 1000000 + 1, 3600000u);
        int got = poll(&p, 1, timeout);
        if (got < 0 && errno != EINTR)
            return -1;
        if (got == 0 && clock_now_ns() >= deadline_ns) {
            errno = ETIMEDOUT;
            return -1;
        }
        if (got <= 0)
            continue;
        int failure = 0;
        socklen_t len = sizeof failure;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) != 0)
            return -1;
        errno = failure;
        return failure == 0 ? 0 : -1;
    }
}

static int connect_address(const struct addrinfo *a, uint64_t deadline_ns)
{
    int fd = socket(a->ai_family, SOCKET_FLAGS, 0), one = 1;
    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || finish_connect(fd, deadline_ns) != 0)) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* a peer that vanished without a word is noticed although we only wait for it */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    return fd;
}

static enum status resolve(const char *host, uint16_t port, int flags, struct addrinfo **ret,
                           struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int failure = getaddrinfo(host[0] != '\0' ? host : NULL, service, &hints, ret);
    if (failure == 0)
        return OK;
    return error_set(err, failure == EAI_NONAME ? ERR_CONFIG : ERR_RETRY, "host \"%s\": %s", host,
                     gai_strerror(failure));
}

enum status socket_connect_tcp(const char *host, uint16_t port, uint64_t deadline_ns,
                               struct stream *ret, struct error *err)
{
    struct addrinfo *list;
    char name[sizeof ret->name];
    TRY(resolve(host, port, 0, &list, err));
    int fd = -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next)
        fd = connect_address(a, deadline_ns);
    int saved = errno;
    freeaddrinfo(list);
    errno = saved;
    if (fd < 0)
        return error_sys(err, ERR_RETRY, "connect to %s:%u", host, port);
    snprintf(name, sizeof name, strchr(host, ':') != NULL ? "[%.100s]:%u" : "%.100s:%u", host,
             port);
    stream_init(ret, fd, name);
    return OK;
}

static enum status unix_address(const char *path, struct sockaddr_un *ret, struct error *err)
{
    memset(ret, 0, sizeof *ret);
    ret->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof ret->sun_path)
        return error_set(err, ERR_CONFIG, "the socket path %s is longer than %zu bytes", path,
                         sizeof ret->sun_path - 1);
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return OK;
}

enum status socket_connect_unix(const char *path, uint64_t deadline_ns, struct stream *ret,
                                struct error *err)
{
    struct sockaddr_un a;
    char name[sizeof ret->name];
    TRY(unix_address(path, &a, err));
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    if (fd < 0)
        return error_sys(err, ERR_RETRY, "socket");
    /* a full backlog gives EAGAIN at once: wait a little and ask again */
    while (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        if (errno == EAGAIN && clock_now_ns() < deadline_ns) {
            poll(NULL, 0, 5);
            continue;
        }
        enum status status = error_sys(err, ERR_RETRY, "connect to unix:%s", path);
        close(fd);
        return status;
    }
    snprintf(name, sizeof name, "unix:%.120s", path);
    stream_init(ret, fd, name);
    return OK;
}

bool socket_unix_is_alive(const char *path)
{
    struct stream s;
    if (socket_connect_unix(path, 0, &s, NULL) != OK)
        return errno == EAGAIN;
    stream_close(&s);
    return true;
}

static enum status listen_unix(const char *path, int *ret_fd, struct error *err)
{
    struct sockaddr_un a;
    struct stat st;
    TRY(unix_address(path, &a, err));
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return error_set(err, ERR_CONFIG, "%s exists and is not a socket", path);
        if (socket_unix_is_alive(path))
            return error_set(err, ERR_CONFIG, "another process listens on unix:%s", path);
        unlink(path);
    }
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    if (fd < 0)
        return error_sys(err, ERR_RETRY, "socket");
    /* the mode is set before listen: nobody can connect in between */
    if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || chmod(path, 0600) != 0 ||
        listen(fd, 128) != 0) {
        enum status status = error_sys(err, ERR_CONFIG, "listen on unix:%s", path);
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return OK;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return 0;
    return a.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&a)->sin6_port)
                                   : ntohs(((struct sockaddr_in *)&a)->sin_port);
}

enum status socket_listen(const struct socket_address *address, int *ret_fd, uint16_t *ret_port,
                          struct error *err)
{
    struct addrinfo *list;
    int one = 1;
    if (ret_port != NULL)
        *ret_port = 0;
    if (address->is_unix)
        return listen_unix(address->path, ret_fd, err);
    TRY(resolve(address->host, address->port, AI_PASSIVE, &list, err));
    int fd = socket(list->ai_family, SOCKET_FLAGS, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, 128) != 0) {
        enum status status =
            error_sys(err, ERR_CONFIG, "listen on %s:%u", address->host, address->port);
        if (fd >= 0)
            close(fd);
        freeaddrinfo(list);
        return status;
    }
    freeaddrinfo(list);
    if (ret_port != NULL)
        *ret_port = bound_port(fd);
    *ret_fd = fd;
    return OK;
}

/* Errors of one connection that died before it was accepted, or a shortage that passes. */
static bool accept_again(int code)
{
    return code == EINTR || code == EAGAIN || code == ECONNABORTED || code == EPROTO ||
           code == ENETDOWN || code == EHOSTUNREACH || code == ENETUNREACH || code == EOPNOTSUPP;
}

enum status socket_accept(int listen_fd, int wake_fd, struct stream *ret, struct error *err)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = listen_fd, .events = POLLIN},
                              {.fd = wake_fd, .events = POLLIN}};
        struct sockaddr_storage a = {0};
        socklen_t len = sizeof a;
        char host[64] = "client", name[128];
        int one = 1;
        if (poll(p, wake_fd >= 0 ? 2 : 1, -1) < 0 && errno != EINTR)
            return error_sys(err, ERR_RETRY, "poll");
        if (wake_fd >= 0 && p[1].revents != 0)
            return error_set(err, ERR_CANCELLED, "no more connections are accepted");
        if (p[0].revents & POLLNVAL)
            return error_set(err, ERR_BUG, "accept on a closed descriptor");
        int fd = accept4(listen_fd, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && accept_again(errno))
            continue;
        if (fd < 0)
            return error_sys(err, ERR_RETRY, "accept");
        if (a.ss_family == AF_INET || a.ss_family == AF_INET6) {
            char port[8] = "";
            getnameinfo((struct sockaddr *)&a, len, host, sizeof host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            snprintf(name, sizeof name, "%s:%s", host, port);
        } else {
            snprintf(name, sizeof name, "unix client");
        }
        stream_init(ret, fd, name);
        return OK;
    }
}
