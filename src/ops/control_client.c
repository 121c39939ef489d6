#include "base/buf.h"
#include "base/queue.h"
#include "base/socket.h"
#include "ops/control.h"
#include "ops/control_request.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_NS UINT64_C(5000000000)
#define REPLY_MAX (64u << 20)

static enum status read_line(struct stream *stream, uint64_t deadline_ns, struct buf *ret,
                             struct error *err)
{
    while (ret->len == 0 || ret->data[ret->len - 1] != '\n') {
        size_t n;
        if (ret->len > REPLY_MAX)
            return error_set(err, ERR_DATA, "the daemon's reply is too long");
        uint8_t *at = buf_reserve(ret, 65536);
        TRY(stream_read(stream, at, 65536, deadline_ns, &n, err));
        if (n == 0)
            return error_set(err, ERR_RETRY, "the daemon closed the connection");
        ret->len += n;
    }
    ret->len--;
    return OK;
}

static enum status converse(struct stream *stream, const json_t *request, uint64_t deadline_ns,
                            json_t **ret_result, struct error *err)
{
    CLEANUP_BUF struct buf line = {0};
    char *text = json_dumps(request, JSON_COMPACT);
    if (text == NULL)
        return error_set(err, ERR_DATA, "the request holds text that is not UTF-8");
    buf_printf(&line, "%s\n", text);
    free(text);
    TRY(stream_write(stream, line.data, line.len, deadline_ns, err));
    buf_reset(&line);
    TRY(read_line(stream, deadline_ns, &line, err));
    return control_reply_parse((const char *)line.data, line.len, ret_result, err);
}

enum status control_call(const char *path, const json_t *request, int timeout_ms,
                         json_t **ret_result, struct error *err)
{
    struct stream stream = {0};
    uint64_t deadline =
        timeout_ms < 0 ? STREAM_NO_DEADLINE : clock_now_ns() + (uint64_t)timeout_ms * 1000000;
    if (socket_connect_unix(path, MIN(deadline, clock_now_ns() + CONNECT_TIMEOUT_NS), &stream,
                            err) != OK)
        return error_set(err, ERR_RETRY,
                         "no walshadow runs on this state directory (nobody answers at %s)", path);
    enum status st = converse(&stream, request, deadline, ret_result, err);
    stream_close(&stream);
    return st;
}
