/* Packets: bytes that real clients sent, and both directions against each other at several
 * revisions. */
#include "test.h"

#include "native/block_wire.h"
#include "native/packet.h"

#define SQL_MAX ((size_t)1 << 20)

static struct error err;
static const uint64_t revisions[] = {54412, 54453, 54459};

static void unhex(const char *hex, struct buf *to)
{
    for (; *hex != '\0'; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        buf_put_u8(to, (uint8_t)byte);
    }
}

static void assert_str(struct str s, const char *text)
{
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.data, text, s.len);
}

/* clickhouse-client 18.16: hello, then SELECT with an LZ4 empty block behind it */
static const char client18_hello[] =
    "0011436c69636b486f75736520636c69656e7412108ca903000764656661756c7400";
static const char client18_query[] = "010001000009302e302e302e303a30010002766d11436c69636b486f75736"
                                     "520636c69656e7412108ca90300020002010d"
                                     "53454c454354203120415320780200a783ac6cd55c7a7cb5ac46bddb86e21"
                                     "482140000000a000000a0010002ffffffff00"
                                     "0000";
/* python3-clickhouse-driver 0.2.5 (54453): two settings, no compression, at a time of its own */
static const char driver_query[] =
    "010001000009302e302e302e303a30cf81123d706106000104726f6f7402766d18436c69636b486f75736520707974"
    "686f"
    "6e2d647269766572140ab5a903000002000000000b6d61785f746872656164730001330c6173796e635f696e736572"
    "7400"
    "0130000002000d53454c454354203120415320780200010002ffffffff000000";

static void test_real_hello(void **state)
{
    (void)state;
    struct buf bytes = {0}, out = {0};
    struct packet_client p;
    unhex(client18_hello, &bytes);
    struct cursor in = cursor_of(bytes.data, bytes.len);
    assert_int_equal(packet_client_parse(&in, PACKET_REVISION, SQL_MAX, &p, &err), PARSE_DONE);
    assert_int_equal(p.type, CLIENT_HELLO);
    assert_str(p.hello.name, "ClickHouse client");
    assert_int_equal(p.hello.revision, 54412);
    assert_str(p.hello.user, "default");
    packet_put_client_hello(&out, &p.hello);
    assert_int_equal(out.len, bytes.len);
    assert_memory_equal(out.data, bytes.data, out.len);
    buf_free(&bytes);
    buf_free(&out);
}

/* Every prefix of the packet asks for more; the whole is parsed, and written back byte for byte. */
static void check_query(const char *hex, uint64_t revision, size_t block_bytes,
                        struct packet_client *ret, struct buf *bytes)
{
    struct buf out = {0};
    unhex(hex, bytes);
    size_t whole = bytes->len - block_bytes;
    for (size_t len = 0; len < whole; len++) {
        uint8_t *exact = xmalloc(len);
        memcpy(exact, bytes->data, len);
        struct cursor in = cursor_of(exact, len);
        assert_int_equal(packet_client_parse(&in, revision, SQL_MAX, ret, &err), PARSE_MORE);
        assert_int_equal(in.pos, 0);
        free(exact);
    }
    struct cursor in = cursor_of(bytes->data, bytes->len);
    assert_int_equal(packet_client_parse(&in, revision, SQL_MAX, ret, &err), PARSE_DONE);
    assert_int_equal(in.pos, whole);
    assert_str(ret->query.sql, "SELECT 1 AS x");
    assert_int_equal(ret->query.stage, 2);
    packet_put_query(&out, revision, &ret->query);
    assert_int_equal(out.len, whole);
    assert_memory_equal(out.data, bytes->data, whole);
    buf_free(&out);
}

static void test_real_queries(void **state)
{
    (void)state;
    struct packet_client p;
    struct buf bytes = {0};
    check_query(client18_query, 54412, 2 + 36, &p, &bytes);
    assert_true(p.query.compression);
    assert_int_equal(p.query.settings.n, 0);
    packet_client_fini(&p);
    buf_reset(&bytes);
    check_query(driver_query, 54453, 2 + 10, &p, &bytes);
    assert_false(p.query.compression);
    assert_int_equal(p.query.settings.n, 2);
    assert_str(p.query.settings.items[0].name, "max_threads");
    assert_str(p.query.settings.items[1].value, "0");
    assert_str(p.query.info.hostname, "vm");
    packet_client_fini(&p);
    buf_free(&bytes);
}

static void test_query_parameters(void **state)
{
    (void)state;
    for (size_t r = 0; r < LENGTH(revisions); r++) {
        struct packet_setting setting = {str_of("a"), str_of("1"), 0};
        struct packet_setting parameter = {str_of("p"), str_of("'x'"), 2};
        struct packet_query q = {.info = {.query_kind = 1, .interface = 1},
                                 .settings = {&setting, 1},
                                 .parameters = {&parameter, 1},
                                 .stage = 2,
                                 .sql = str_of("SELECT {p:String}")};
        struct buf out = {0};
        struct packet_client p;
        packet_put_query(&out, revisions[r], &q);
        struct cursor in = cursor_of(out.data, out.len);
        assert_int_equal(packet_client_parse(&in, revisions[r], SQL_MAX, &p, &err), PARSE_DONE);
        assert_int_equal(cursor_left(&in), 0);
        assert_int_equal(p.query.settings.n, revisions[r] >= 54429);
        assert_int_equal(p.query.parameters.n, revisions[r] >= 54459);
        packet_client_fini(&p);
        buf_free(&out);
    }
}

static void test_server_hello(void **state)
{
    (void)state;
    struct buf bytes = {0};
    struct packet_server p;
    /* 0, "ClickHouse", 18, 16, 54412, "UTC", "vm", 1: assembled by hand */
    unhex("000a436c69636b486f75736512108ca9030355544302766d01", &bytes);
    struct cursor in = cursor_of(bytes.data, bytes.len);
    assert_int_equal(packet_server_parse(&in, PACKET_REVISION, &p, &err), PARSE_DONE);
    assert_int_equal(cursor_left(&in), 0);
    assert_int_equal(p.hello.revision, 54412);
    assert_str(p.hello.timezone, "UTC");
    assert_int_equal(p.hello.patch, 1);
    struct buf out = {0};
    packet_put_server_hello(&out, 54412, &p.hello);
    assert_memory_equal(out.data, bytes.data, bytes.len);
    buf_free(&out);
    buf_free(&bytes);
}

static void test_exception_chain(void **state)
{
    (void)state;
    struct buf bytes = {0};
    struct packet_server p;
    /* code 60 "DB::Exception" "no t" "" nested: code 1 "" "" "" end */
    unhex("023c0000000d44423a3a457863657074696f6e046e6f2074000101000000000000"
          "00",
          &bytes);
    for (size_t len = 0; len <= bytes.len; len++) {
        struct cursor in = cursor_of(bytes.data, len);
        assert_int_equal(packet_server_parse(&in, 54459, &p, &err),
                         len < bytes.len ? PARSE_MORE : PARSE_DONE);
    }
    assert_int_equal(p.exception.code, 60);
    assert_str(p.exception.message, "no t");
    /* a chain without an end is refused */
    struct buf endless = {0};
    buf_put_u8(&endless, SERVER_EXCEPTION);
    for (int i = 0; i < 100; i++) {
        buf_put_zeros(&endless, 7);
        buf_put_u8(&endless, 1);
    }
    struct cursor in = cursor_of(endless.data, endless.len);
    assert_int_equal(packet_server_parse(&in, 54459, &p, &err), PARSE_BAD);
    buf_free(&endless);
    buf_free(&bytes);
}

static void put_server_packets(struct buf *out, uint64_t revision)
{
    struct packet_progress progress = {1, 2, 300, 4, 5};
    struct packet_profile_info info = {10, 2, 3000, 9, true, true};
    struct packet_table_name table = {str_of("db"), str_of("t")};
    packet_put_progress(out, revision, &progress);
    packet_put_profile_info(out, &info);
    packet_put_table_columns(out, str_of("t"), str_of("columns format version: 1"));
    packet_put_tables_status(out, &table, 1);
    packet_put_timezone_update(out, str_of("UTC"));
    packet_put_pong(out);
    packet_put_end_of_stream(out);
}

static void test_server_packets(void **state)
{
    (void)state;
    static const enum server_packet_type order[] = {
        SERVER_PROGRESS,        SERVER_PROFILE_INFO, SERVER_TABLE_COLUMNS, SERVER_TABLES_STATUS,
        SERVER_TIMEZONE_UPDATE, SERVER_PONG,         SERVER_END_OF_STREAM};
    for (size_t r = 0; r < LENGTH(revisions); r++) {
        struct buf out = {0};
        put_server_packets(&out, revisions[r]);
        struct cursor in = cursor_of(out.data, out.len);
        for (size_t i = 0; i < LENGTH(order); i++) {
            struct packet_server p;
            assert_int_equal(packet_server_parse(&in, revisions[r], &p, &err), PARSE_DONE);
            assert_int_equal(p.type, order[i]);
            if (p.type == SERVER_PROGRESS) {
                assert_int_equal(p.progress.total_rows, 300);
                assert_int_equal(p.progress.written_bytes, revisions[r] >= 54420 ? 5 : 0);
            } else if (p.type == SERVER_PROFILE_INFO) {
                assert_int_equal(p.profile.rows_before_limit, 9);
                assert_true(p.profile.calculated);
            }
        }
        assert_int_equal(cursor_left(&in), 0);
        buf_free(&out);
    }
}

static void test_client_packets(void **state)
{
    (void)state;
    struct buf out = {0};
    struct packet_table_name tables[2] = {{str_of("db"), str_of("t")}, {str_of("db"), str_of("u")}};
    packet_put_ping(&out);
    packet_put_cancel(&out);
    packet_put_tables_request(&out, tables, 2);
    packet_put_client_data(&out, CLIENT_SCALAR, str_of("_subquery1"));
    buf_put_u8(&out, 99);
    struct cursor in = cursor_of(out.data, out.len);
    struct packet_client p;
    assert_int_equal(packet_client_parse(&in, 54459, SQL_MAX, &p, &err), PARSE_DONE);
    assert_int_equal(p.type, CLIENT_PING);
    assert_int_equal(packet_client_parse(&in, 54459, SQL_MAX, &p, &err), PARSE_DONE);
    assert_int_equal(p.type, CLIENT_CANCEL);
    assert_int_equal(packet_client_parse(&in, 54459, SQL_MAX, &p, &err), PARSE_DONE);
    assert_int_equal(p.tables.n, 2);
    assert_str(p.tables.items[1].table, "u");
    packet_client_fini(&p);
    assert_int_equal(packet_client_parse(&in, 54459, SQL_MAX, &p, &err), PARSE_DONE);
    assert_str(p.table_name, "_subquery1");
    assert_int_equal(packet_client_parse(&in, 54459, SQL_MAX, &p, &err), PARSE_BAD);
    buf_free(&out);
}

/* A block byte by byte: more is asked for until its end, and the end is found with bytes behind it.
 */
static void test_block_growing(void **state)
{
    (void)state;
    for (size_t r = 0; r < LENGTH(revisions); r++) {
        struct buf out = {0};
        block_wire_put_start(&out, revisions[r], 2, 2);
        block_wire_put_column(&out, revisions[r], str_of("id"), str_of("Int64"));
        buf_put_i64(&out, 1);
        buf_put_i64(&out, -1);
        block_wire_put_column(&out, revisions[r], str_of("s"), str_of("Nullable(String)"));
        unhex("0001"
              "0361626300",
              &out);
        size_t whole = out.len, len = 0;
        buf_put_u8(&out, SERVER_END_OF_STREAM);
        struct block_reader b = {.revision = revisions[r], .max_bytes = 1000};
        for (size_t n = 0; n <= out.len; n++) {
            uint8_t *exact = xmalloc(n);
            memcpy(exact, out.data, n);
            assert_int_equal(block_reader_parse(&b, exact, n, &len, &err),
                             n < whole ? PARSE_MORE : PARSE_DONE);
            free(exact);
        }
        assert_int_equal(len, whole);
        assert_int_equal(b.ncols, 2);
        assert_int_equal(b.cols[1].data + b.cols[1].data_len, whole);
        assert_int_equal(b.cols[1].data_len, 7);
        assert_int_equal(b.cols[0].data_len, 16);
        assert_string_equal(b.cols[1].type_text, "Nullable(String)");
        block_reader_reset(&b);
        b.max_bytes = 20;
        assert_int_equal(block_reader_parse(&b, out.data, out.len, &len, &err), PARSE_BAD);
        block_reader_fini(&b);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_hello),       cmocka_unit_test(test_real_queries),
        cmocka_unit_test(test_query_parameters), cmocka_unit_test(test_server_hello),
        cmocka_unit_test(test_exception_chain),  cmocka_unit_test(test_server_packets),
        cmocka_unit_test(test_client_packets),   cmocka_unit_test(test_block_growing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
