/* The client against a real clickhouse-server of version 18.16 (protocol revision 54412), started
 * here on a free port. Skipped, with the reason printed, where that program is not installed. */
#include "test.h"

#include "base/child.h"
#include "base/file.h"
#include "base/queue.h"
#include "base/socket.h"
#include "clickhouse/client.h"
#include "native/block.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_OF_SERVER "clickhouse-server"
#define ROWS 3000u

static struct child server;
static char dir[] = "/tmp/test_clickhouse_server.XXXXXX";
static uint16_t port;
static bool have_server;
static struct error err;

static const char config_text[] =
    "<yandex><logger><level>warning</level><console>1</console></logger>"
    "<tcp_port>%u</tcp_port><listen_host>127.0.0.1</listen_host><path>%s/data/</path>"
    "<tmp_path>%s/tmp/</tmp_path><mark_cache_size>5368709120</mark_cache_size>"
    "<users_config>%s/users.xml</users_config><default_profile>default</default_profile>"
    "<default_database>default</default_database><interserver_http_port>0</interserver_http_port>"
    "</yandex>";
static const char users_text[] =
    "<yandex><profiles><default/></profiles><quotas><default/></quotas><users>"
    "<default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</"
    "profile>"
    "<quota>default</quota></default>"
    "<someone><password>secret</password><networks><ip>127.0.0.1</ip></networks>"
    "<profile>default</profile><quota>default</quota></someone></users></yandex>";

static void write_text(const char *name, const char *text, uid_t uid)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_write_atomic(path, text, strlen(text), 0644, &err));
    assert_int_equal(chown(path, uid, (gid_t)-1), 0);
}

static uint16_t free_port(void)
{
    struct socket_address a = {.host = "127.0.0.1"};
    uint16_t found;
    int fd;
    assert_ok(socket_listen(&a, &fd, &found, &err));
    close(fd);
    return found;
}

static struct ch_endpoint endpoint(enum ch_compression compression)
{
    return (struct ch_endpoint){.host = "127.0.0.1",
                                .port = port,
                                .compression = compression,
                                .connect_ms = 3000,
                                .send_ms = 20000,
                                .receive_ms = 20000};
}

/* The server refuses to run as root. */
static int start_server(void **state)
{
    (void)state;
    char text[2000], file[300];
    if (system("command -v " NAME_OF_SERVER " >/dev/null 2>&1") != 0) {
        printf("skipped: no " NAME_OF_SERVER " in PATH\n");
        return 0;
    }
    const struct passwd *user = geteuid() == 0 ? getpwnam("nobody") : getpwuid(geteuid());
    if (user == NULL || mkdtemp(dir) == NULL || chown(dir, user->pw_uid, (gid_t)-1) != 0)
        return -1;
    port = free_port();
    snprintf(text, sizeof text, config_text, port, dir, dir, dir);
    write_text("config.xml", text, user->pw_uid);
    write_text("users.xml", users_text, user->pw_uid);
    snprintf(file, sizeof file, "--config-file=%s/config.xml", dir);
    const char *as_user[] = {
        "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", NAME_OF_SERVER, file,
        NULL};
    struct child_options options = {.argv = geteuid() == 0 ? as_user : as_user + 4,
                                    .directory = dir,
                                    .log_prefix = "server",
                                    .death_signal = SIGKILL};
    assert_ok(child_start(&server, &options, &err));
    struct ch_endpoint ep = endpoint(CH_COMPRESSION_NONE);
    for (int i = 0; i < 600; i++) {
        struct ch_client *c;
        bool ended;
        if (ch_client_open(&ep, &c, &err) == OK) {
            ch_client_close(c);
            have_server = true;
            return 0;
        }
        assert_ok(child_wait(&server, clock_now_ns() + 50000000, &ended, &err));
        if (ended)
            break;
    }
    printf("the server did not come up: %s; %s\n", err.message, server.last_line);
    return -1;
}

static int stop_server(void **state)
{
    (void)state;
    child_stop(&server, SIGKILL, 10000); /* it takes its time to stop, and its data goes anyway */
    if (port != 0)
        return file_remove_tree(dir, true, &err) == OK ? 0 : -1;
    return 0;
}

static struct ch_client *open_client(enum ch_compression compression)
{
    struct ch_client *c = NULL;
    struct ch_endpoint ep = endpoint(compression);
    if (!have_server)
        skip();
    assert_ok(ch_client_open(&ep, &c, &err));
    return c;
}

#define NCOLS 7
static const char *const column_names[NCOLS] = {"id", "s", "n", "at", "price", "list", "ratio"};
static const char *const column_types[NCOLS] = {
    "Int64", "String", "Nullable(String)", "DateTime", "Decimal(18, 2)", "Array(Int32)", "Float64"};

static struct block_header *header_new(void)
{
    struct block_header *h = xcalloc(1, sizeof *h + NCOLS * sizeof h->cols[0]);
    h->ncols = NCOLS;
    for (unsigned i = 0; i < NCOLS; i++) {
        h->cols[i].name = (char *)column_names[i];
        h->cols[i].type = (char *)column_types[i];
    }
    return h;
}

/* Row i's values; the SELECTs below state them in SQL, which is the oracle. */
static struct block *block_make(const struct block_header *h, uint32_t from, uint32_t n)
{
    struct block *b = block_new(h);
    uint64_t elements = 0;
    struct buf list = {0};
    for (uint32_t i = from; i < from + n; i++) {
        char text[40];
        double ratio = i / 4.0;
        snprintf(text, sizeof text, "row %u", i);
        buf_put_i64(&b->cols[0].data, (int64_t)i * 1000003 - 5);
        buf_put_str(&b->cols[1].data, text);
        buf_put_u8(&b->cols[2].nulls, i % 3 == 0);
        buf_put_str(&b->cols[2].data, i % 3 == 0 ? "" : text + 4);
        buf_put_u32(&b->cols[3].data, 1500000000 + i);
        buf_put_i64(&b->cols[4].data, -150 + (int64_t)i);
        elements += i % 4;
        buf_put_u64(&b->cols[5].data, elements);
        for (uint32_t k = 0; k < i % 4; k++)
            buf_put_i32(&list, (int32_t)k - 1);
        buf_put(&b->cols[6].data, &ratio, sizeof ratio);
    }
    buf_put(&b->cols[5].data, list.data, list.len);
    buf_free(&list);
    b->rows = n;
    return b;
}

static const char insert_sql[] = "INSERT INTO t (id, s, n, at, price, list, ratio) FORMAT Native";

static enum status keep_row(void *ctx, const char *const *fields, const size_t *lengths, unsigned n,
                            struct error *error)
{
    char *line = ctx;
    (void)error;
    for (unsigned i = 0; i < n; i++) {
        assert_true(fields[i] == NULL || strlen(fields[i]) == lengths[i]);
        snprintf(line + strlen(line), 1000 - strlen(line), "%s%s",
                 fields[i] != NULL ? fields[i] : "\\N", i + 1 < n ? "|" : "\n");
    }
    return OK;
}

static const char *query(struct ch_client *c, const char *sql, char *line)
{
    line[0] = '\0';
    assert_ok(ch_client_select(c, sql, NULL, 0, keep_row, line, &err));
    return line;
}

static void create_table(struct ch_client *c)
{
    assert_ok(ch_client_execute(c, "DROP TABLE IF EXISTS t", NULL, 0, &err));
    assert_ok(
        ch_client_execute(c,
                          "CREATE TABLE t (id Int64, s String, n Nullable(String), at DateTime, "
                          "price Decimal(18, 2), list Array(Int32), ratio Float64) "
                          "ENGINE = MergeTree ORDER BY id",
                          NULL, 0, &err));
}

static void insert_and_compare(enum ch_compression compression)
{
    struct ch_client *c = open_client(compression);
    char line[1000];
    create_table(c);
    struct block_header *h = header_new();
    struct block *blocks[3] = {block_make(h, 0, ROWS), block_make(h, ROWS, 0),
                               block_make(h, ROWS, ROWS)};
    /* ignored by a server of this age, not refused */
    struct ch_setting settings[] = {{"async_insert", "0"}, {"optimize_on_insert", "0"}};
    assert_ok(ch_client_insert(c, insert_sql, h, blocks, 3, settings, 2, &err));
    assert_false(ch_client_broken(c));
    assert_string_equal(
        query(c,
              "SELECT count(), sum(i = 0), sum(s != concat('row ', toString(k))),"
              " sum(isNull(n) != (k % 3 = 0)), sum(ifNull(n, toString(k)) != toString(k)),"
              " sum(toUInt32(at) != 1500000000 + k), sum(price * 100 != k - 150),"
              " sum(length(list) != k % 4 OR arraySum(list) != arraySum(x -> x - 1, "
              "range(toUInt64(k % 4)))),"
              " sum(ratio != k / 4) FROM"
              " (SELECT *, intDiv(id + 5, 1000003) AS k, (id + 5) % 1000003 = 0 AS i FROM t)",
              line),
        "6000|0|0|0|0|0|0|0|0\n");
    assert_string_equal(query(c,
                              "SELECT id, s, n, at, price, ratio, toString(list) FROM t WHERE id IN"
                              " (-5, 3000004) ORDER BY id",
                              line),
                        "-5|row 0|\\N|2017-07-14 02:40:00|-1.50|0|[]\n"
                        "3000004|row 3|\\N|2017-07-14 02:40:03|-1.47|0.75|[-1,0,1]\n");
    for (size_t i = 0; i < LENGTH(blocks); i++)
        block_free(blocks[i]);
    free(h);
    ch_client_close(c);
}

static void test_insert_plain(void **state)
{
    (void)state;
    insert_and_compare(CH_COMPRESSION_NONE);
}

static void test_insert_lz4(void **state)
{
    (void)state;
    insert_and_compare(CH_COMPRESSION_LZ4);
}

static void test_insert_zstd(void **state)
{
    (void)state;
    insert_and_compare(CH_COMPRESSION_ZSTD);
}

/* Larger than the socket's buffers and than one frame. */
static void insert_large(enum ch_compression compression)
{
    struct ch_client *c = open_client(compression);
    char line[1000];
    struct block_header *h = xcalloc(1, sizeof *h + sizeof h->cols[0]);
    h->ncols = 1;
    h->cols[0] = (struct column_header){"s", "String"};
    struct block *b = block_new(h);
    uint32_t seed = 1;
    for (b->rows = 0; b->rows < 40; b->rows++) {
        buf_put_varint(&b->cols[0].data, 500000);
        for (int i = 0; i < 125000; i++)
            buf_put_u32(&b->cols[0].data, seed = seed * 1664525 + 1013904223);
    }
    assert_ok(ch_client_execute(c, "DROP TABLE IF EXISTS large", NULL, 0, &err));
    assert_ok(ch_client_execute(c, "CREATE TABLE large (s String) ENGINE = Memory", NULL, 0, &err));
    assert_ok(ch_client_insert(c, "INSERT INTO large (s) FORMAT Native", h, &b, 1, NULL, 0, &err));
    assert_string_equal(query(c, "SELECT count(), uniqExact(s), sum(length(s)) FROM large", line),
                        "40|40|20000000\n");
    /* and back, through our reader */
    assert_string_equal(query(c, "SELECT length(max(s)) FROM large", line), "500000\n");
    block_free(b);
    free(h);
    ch_client_close(c);
}

static void test_insert_large(void **state)
{
    (void)state;
    insert_large(CH_COMPRESSION_NONE);
    insert_large(CH_COMPRESSION_LZ4);
}

static struct ch_client *reopen(struct ch_client *c)
{
    ch_client_close(c);
    return open_client(CH_COMPRESSION_LZ4);
}

static void test_exceptions(void **state)
{
    (void)state;
    struct ch_client *c = open_client(CH_COMPRESSION_LZ4);
    char line[1000];
    struct block_header *h = header_new();
    struct block *b = block_make(h, 0, 10);
    assert_int_equal(ch_client_execute(c, "SELECT * FROM nowhere", NULL, 0, &err), ERR_DATA);
    assert_int_equal(err.ch_code, 60);
    /* servers of this age may be out of step after an exception */
    assert_true(ch_client_broken(c));
    c = reopen(c);
    assert_int_equal(ch_client_execute(c, "SELEC 1", NULL, 0, &err), ERR_RETRY);
    assert_int_equal(err.ch_code, 62);
    c = reopen(c);
    assert_int_equal(
        ch_client_insert(c, "INSERT INTO nowhere (id) FORMAT Native", h, &b, 1, NULL, 0, &err),
        ERR_DATA);
    assert_int_equal(err.ch_code, 60);
    c = reopen(c);
    assert_ok(ch_client_ping(c, &err));
    assert_string_equal(query(c, "SELECT 1, NULL, toUInt64(18446744073709551615)", line),
                        "1|\\N|18446744073709551615\n");
    /* a table of another shape is found before data is sent */
    create_table(c);
    assert_ok(ch_client_execute(c, "ALTER TABLE t MODIFY COLUMN ratio Float32", NULL, 0, &err));
    assert_int_equal(ch_client_insert(c, insert_sql, h, &b, 1, NULL, 0, &err), ERR_DATA);
    assert_int_equal(err.ch_code, 53);
    assert_non_null(strstr(err.message, "ratio"));
    assert_true(ch_client_broken(c));
    block_free(b);
    free(h);
    ch_client_close(c);
}

/* One that only shows once the server computes with the data. */
static void test_exception_in_data(void **state)
{
    (void)state;
    struct ch_client *c = open_client(CH_COMPRESSION_NONE);
    struct block_header *h = header_new();
    create_table(c);
    assert_ok(ch_client_execute(
        c, "ALTER TABLE t ADD COLUMN m Int64 MATERIALIZED intDiv(1, id + 5)", NULL, 0, &err));
    struct block *b = block_make(h, 0, 100); /* row 0 has the id -5 */
    assert_int_not_equal(ch_client_insert(c, insert_sql, h, &b, 1, NULL, 0, &err), OK);
    assert_int_equal(err.ch_code, 153);
    assert_true(ch_client_broken(c));
    assert_int_equal(ch_client_execute(c, "SELECT 1", NULL, 0, &err), ERR_RETRY);
    ch_client_close(c);
    block_free(b);
    free(h);
}

static void test_logins(void **state)
{
    (void)state;
    struct ch_client *c = open_client(CH_COMPRESSION_NONE);
    assert_int_equal(ch_client_server(c)->revision, 54412);
    assert_string_equal(ch_client_server(c)->name, "ClickHouse");
    assert_true(ch_client_server_is(c, 18, 16));
    assert_false(ch_client_server_is(c, 18, 17));
    ch_client_close(c);
    struct ch_endpoint ep = endpoint(CH_COMPRESSION_NONE);
    ep.user = "someone";
    ep.password = "secret";
    ep.database = "system";
    assert_ok(ch_client_open(&ep, &c, &err));
    char line[1000];
    assert_string_equal(query(c, "SELECT currentDatabase()", line), "system\n");
    ch_client_close(c);
    ep.password = "wrong";
    assert_int_equal(ch_client_open(&ep, &c, &err), ERR_CONFIG);
    assert_int_equal(err.ch_code, 193);
    ep.user = "nobody";
    assert_int_equal(ch_client_open(&ep, &c, &err), ERR_CONFIG);
    assert_int_equal(err.ch_code, 192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_insert_plain), cmocka_unit_test(test_insert_lz4),
        cmocka_unit_test(test_insert_zstd),  cmocka_unit_test(test_insert_large),
        cmocka_unit_test(test_exceptions),   cmocka_unit_test(test_exception_in_data),
        cmocka_unit_test(test_logins),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
