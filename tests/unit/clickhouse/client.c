/* The client against a scripted server: what real ones do only when they are in trouble. */
#include "test.h"

#include "base/queue.h"
#include "base/socket.h"
#include "clickhouse/client.h"
#include "native/block_wire.h"
#include "native/frame.h"

#include <pthread.h>
#include <unistd.h>

static struct error err;
static char path[100];
static int listener;

/* What the server of one test does once it has said hello. */
static void (*script)(struct stream *s);
static uint64_t server_revision = 54459;

static void say(struct stream *s, struct buf *b)
{
    /* the client may have gone already: that is its test's business */
    enum status ignored = stream_write(s, b->data, b->len, clock_now_ns() + 2000000000, NULL);
    (void)ignored;
    buf_free(b);
}

/* Reads until `bytes` have come in or the client hangs up. */
static size_t swallow(struct stream *s, size_t bytes)
{
    char chunk[65536];
    size_t total = 0, got = 1;
    while (total < bytes && got > 0) {
        if (stream_read(s, chunk, sizeof chunk, clock_now_ns() + 5000000000, &got, NULL) != OK)
            break;
        total += got;
    }
    return total;
}

static void *serve(void *arg)
{
    struct stream s;
    struct buf out = {0};
    (void)arg;
    if (socket_accept(listener, -1, &s, NULL) != OK)
        return NULL;
    swallow(&s, 1);
    struct packet_server_hello hello = {.name = str_of("ClickHouse"),
                                        .major = 26,
                                        .minor = 7,
                                        .revision = server_revision,
                                        .timezone = str_of("UTC"),
                                        .display_name = str_of("fake"),
                                        .patch = 2};
    packet_put_server_hello(&out, server_revision, &hello);
    say(&s, &out);
    char addendum; /* an empty string: one byte */
    size_t got;
    if (stream_read(&s, &addendum, 1, clock_now_ns() + 2000000000, &got, NULL) == OK)
        script(&s);
    stream_close(&s);
    return NULL;
}

static pthread_t server_thread;

static struct ch_client *open_with(void (*what)(struct stream *s), enum ch_compression compression)
{
    struct ch_client *c = NULL;
    struct ch_endpoint ep = {.unix_path = path,
                             .compression = compression,
                             .connect_ms = 2000,
                             .send_ms = 3000,
                             .receive_ms = 3000};
    script = what;
    assert_int_equal(pthread_create(&server_thread, NULL, serve, NULL), 0);
    assert_ok(ch_client_open(&ep, &c, &err));
    return c;
}

static void done(struct ch_client *c)
{
    ch_client_close(c);
    pthread_join(server_thread, NULL);
}

static void say_exception(struct stream *s, int code, const char *text)
{
    struct buf out = {0};
    packet_put_exception(&out, code, str_of("DB::Exception"), str_of(text), str_of(""));
    say(s, &out);
}

static void put_sample(struct buf *out, const char *type)
{
    packet_put_server_data(out, SERVER_DATA, str_of(""));
    block_wire_put_start(out, server_revision, 1, 0);
    block_wire_put_column(out, server_revision, str_of("s"), str_of(type));
}

static enum status insert_string(struct ch_client *c, size_t bytes)
{
    struct block_header *h = xcalloc(1, sizeof *h + sizeof h->cols[0]);
    h->ncols = 1;
    h->cols[0] = (struct column_header){"s", "String"};
    struct block *b = block_new(h);
    b->rows = 1;
    buf_put_varint(&b->cols[0].data, bytes);
    buf_put_zeros(&b->cols[0].data, bytes);
    enum status status =
        ch_client_insert(c, "INSERT INTO t (s) FORMAT Native", h, &b, 1, NULL, 0, &err);
    block_free(b);
    free(h);
    return status;
}

/* Takes a little of the data, says why it will not take more, and stops reading. */
static void fails_in_data(struct stream *s)
{
    struct buf out = {0};
    swallow(s, 1);
    put_sample(&out, "String");
    say(s, &out);
    swallow(s, 100000);
    say_exception(s, 241, "Memory limit exceeded");
    usleep(300000);
}

static void test_exception_in_data(void **state)
{
    (void)state;
    struct ch_client *c = open_with(fails_in_data, CH_COMPRESSION_NONE);
    uint64_t start = clock_now_ns();
    assert_int_equal(insert_string(c, 5u << 20), ERR_RETRY);
    assert_int_equal(err.ch_code, 241);
    assert_true(clock_now_ns() - start < 2000000000); /* read while writing, not after a timeout */
    assert_true(ch_client_broken(c));
    done(c);
}

/* Bytes the client sent after the sample block; written before the thread ends. */
static size_t after_sample;

static void wants_other_type(struct stream *s)
{
    struct buf out = {0};
    swallow(s, 1);
    put_sample(&out, "Int64");
    say(s, &out);
    after_sample = swallow(s, 1000);
}

static void test_other_type(void **state)
{
    (void)state;
    struct ch_client *c = open_with(wants_other_type, CH_COMPRESSION_NONE);
    assert_int_equal(insert_string(c, 10), ERR_DATA);
    assert_int_equal(err.ch_code, 53);
    assert_true(ch_client_broken(c));
    done(c);
    assert_int_equal(after_sample, 0);
}

static void talks_in_between(struct stream *s)
{
    struct buf out = {0};
    struct packet_progress progress = {1, 1, 1, 1, 1};
    swallow(s, 1);
    packet_put_table_columns(&out, str_of(""), str_of("columns format version: 1"));
    put_sample(&out, "String");
    for (int i = 0; i < 3; i++) { /* a log of its own, uncompressed whatever the query asked for */
        packet_put_progress(&out, server_revision, &progress);
        packet_put_server_data(&out, SERVER_PROFILE_EVENTS, str_of(""));
        block_wire_put_start(&out, server_revision, 1, 1);
        block_wire_put_column(&out, server_revision, str_of("value"), str_of("Int64"));
        buf_put_i64(&out, 7);
    }
    /* byte by byte, so that every packet is seen cut */
    for (size_t i = 0; i < out.len; i++) {
        struct buf one = {0};
        buf_put_u8(&one, out.data[i]);
        say(s, &one);
    }
    buf_reset(&out);
    /* 22 bytes of headers, 4 of the length, the string, 12 of the empty block */
    swallow(s, 22 + 4 + 3000000 + 12);
    packet_put_end_of_stream(&out);
    say(s, &out);
}

static void test_talk_in_between(void **state)
{
    (void)state;
    struct ch_client *c = open_with(talks_in_between, CH_COMPRESSION_NONE);
    assert_ok(insert_string(c, 3000000));
    assert_false(ch_client_broken(c));
    done(c);
}

static void hangs_up(struct stream *s)
{
    swallow(s, 1);
}

static void test_hang_up(void **state)
{
    (void)state;
    struct ch_client *c = open_with(hangs_up, CH_COMPRESSION_NONE);
    assert_int_equal(ch_client_execute(c, "SELECT 1", NULL, 0, &err), ERR_RETRY);
    assert_int_equal(err.ch_code, 0);
    assert_true(ch_client_broken(c));
    done(c);
}

static void says_garbage(struct stream *s)
{
    struct buf out = {0};
    swallow(s, 1);
    for (int i = 0; i < 5000; i++)
        buf_put_u8(&out, (uint8_t)(0x99 + i * 7));
    say(s, &out);
}

static void test_garbage(void **state)
{
    (void)state;
    struct ch_client *c = open_with(says_garbage, CH_COMPRESSION_NONE);
    assert_int_equal(ch_client_execute(c, "SELECT 1", NULL, 0, &err), ERR_DATA);
    assert_true(ch_client_broken(c));
    done(c);
}

static void says_bad_frame(struct stream *s)
{
    struct buf out = {0}, plain = {0};
    swallow(s, 1);
    packet_put_server_data(&out, SERVER_DATA, str_of(""));
    block_wire_put_start(&plain, server_revision, 0, 0);
    frame_put(FRAME_LZ4, plain.data, plain.len, &out);
    out.data[out.len - 1] ^= 1;
    buf_free(&plain);
    say(s, &out);
}

static void test_bad_frame(void **state)
{
    (void)state;
    struct ch_client *c = open_with(says_bad_frame, CH_COMPRESSION_LZ4);
    assert_int_equal(ch_client_execute(c, "SELECT 1", NULL, 0, &err), ERR_DATA);
    assert_non_null(strstr(err.message, "checksum"));
    assert_true(ch_client_broken(c));
    done(c);
}

static void says_nothing(struct stream *s)
{
    swallow(s, 10000000);
}

static void *interrupt(void *arg)
{
    usleep(100000);
    ch_client_interrupt(arg);
    return NULL;
}

static void test_interrupt(void **state)
{
    (void)state;
    pthread_t thread;
    struct ch_client *c = open_with(says_nothing, CH_COMPRESSION_NONE);
    assert_int_equal(pthread_create(&thread, NULL, interrupt, c), 0);
    assert_int_equal(ch_client_execute(c, "SELECT 1", NULL, 0, &err), ERR_CANCELLED);
    pthread_join(thread, NULL);
    done(c);
}

static void test_silence(void **state)
{
    (void)state;
    struct ch_client *c = open_with(says_nothing, CH_COMPRESSION_NONE);
    assert_int_equal(ch_client_ping(c, &err), ERR_RETRY);
    assert_true(ch_client_broken(c));
    done(c);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct ch_client *c;
    struct ch_endpoint ep = {.unix_path = "/nonexistent/socket"};
    assert_int_equal(ch_client_open(&ep, &c, &err), ERR_RETRY);
    struct ch_endpoint nowhere = {.user = "x"};
    assert_int_equal(ch_client_open(&nowhere, &c, &err), ERR_CONFIG);
}

static int setup(void **state)
{
    struct socket_address a = {.is_unix = true};
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_client.%d", (int)getpid());
    snprintf(a.path, sizeof a.path, "%s", path);
    return socket_listen(&a, &listener, NULL, &err) == OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    close(listener);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exception_in_data), cmocka_unit_test(test_other_type),
        cmocka_unit_test(test_talk_in_between),   cmocka_unit_test(test_hang_up),
        cmocka_unit_test(test_garbage),           cmocka_unit_test(test_bad_frame),
        cmocka_unit_test(test_interrupt),         cmocka_unit_test(test_silence),
        cmocka_unit_test(test_nobody_there),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
