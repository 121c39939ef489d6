/* The report has exactly the documented members, in their types; metrics render as Prometheus
 * reads. */
#include "test.h"

#include "base/metrics.h"
#include "ops/status.h"

#include <math.h>

static void test_shape(void **state)
{
    /* the documented example, with a value in every array */
    static const char want[] =
        "{\"version\":\"" WALSHADOW_VERSION
        "\",\"pid\":1,\"uptime_s\":2,\"http\":\"127.0.0.1:9484\","
        "\"state\":\"streaming\",\"waiting_on\":null,"
        "\"source\":{\"system_id\":\"18000000000000000001\",\"timeline\":1,\"received_lsn\":\"1/"
        "AB\","
        "\"write_lsn\":\"0/0\",\"slot\":\"s\",\"retained_bytes\":5},"
        "\"shadow\":{\"replay_lsn\":\"0/7\",\"connected\":true},"
        "\"decoder\":{\"commit_lsn\":\"0/8\",\"open_xacts\":3,\"oldest_open_lsn\":null},"
        "\"prepared\":[{\"gid\":\"g\",\"age_s\":4,\"bytes\":6}],"
        "\"floor_lsn\":\"0/0\",\"ack_lsn\":\"0/9\",\"archive_bytes\":0,"
        "\"holds\":{\"count\":1,\"p50_ms\":0.5,\"max_ms\":2.0},\"memory\":{\"resident_bytes\":11},"
        "\"destinations\":[{\"name\":\"default\",\"ack_lsn\":\"0/9\",\"lag_bytes\":1,"
        "\"lag_seconds\":0.5,\"rows\":2,\"inserts\":3,\"errors\":0,\"last_error\":null}],"
        "\"bootstrap\":{\"bytes_done\":0,\"bytes_total\":0,\"rows\":0,\"rows_per_s\":0.0,"
        "\"eta_s\":null},"
        "\"tables\":[{\"name\":\"public.foo\",\"destination\":\"default\",\"target\":\"app.foo\","
        "\"rows\":12,\"state\":\"stopped\",\"reason\":\"because\"}]}";
    (void)state;
    struct status_prepared prepared = {"g", 4, 6};
    struct status_destination dest = {.name = "default",
                                      .ack_lsn = 9,
                                      .lag_bytes = 1,
                                      .lag_seconds = 0.5,
                                      .rows = 2,
                                      .inserts = 3};
    struct status_table table = {"public.foo", "default", "app.foo", 12, TABLE_STOPPED, "because"};
    struct status_report r = {.pid = 1,
                              .uptime_s = 2,
                              .http = "127.0.0.1:9484",
                              .state = DAEMON_STREAMING,
                              .ack_lsn = 9,
                              .resident_bytes = 11,
                              .prepared = &prepared,
                              .nprepared = 1,
                              .destinations = &dest,
                              .ndestinations = 1,
                              .tables = &table,
                              .ntables = 1};
    r.source.system_id = UINT64_C(18000000000000000001);
    r.source.timeline = 1;
    r.source.received_lsn = 0x1000000AB;
    r.source.slot = "s";
    r.source.retained_bytes = 5;
    r.shadow.replay_lsn = 7;
    r.shadow.connected = true;
    r.decoder.commit_lsn = 8;
    r.decoder.open_xacts = 3;
    r.holds.count = 1;
    r.holds.p50_ms = 0.5;
    r.holds.max_ms = 2;
    r.bootstrap.eta_s = -1;
    json_error_t json_err;
    json_t *expected = json_loads(want, 0, &json_err), *got = status_report_json(&r);
    assert_non_null(expected);
    if (!json_equal(expected, got)) {
        char *text = json_dumps(got, 0);
        fail_msg("got %s", text);
    }
    CLEANUP_BUF struct buf text = {0};
    status_json_render_text(got, &text);
    assert_non_null(strstr(buf_cstr(&text), "state        streaming"));
    buf_reset(&text);
    status_json_render_tables(got, &text);
    assert_non_null(strstr(buf_cstr(&text), "(because)"));
    json_decref(expected);
    json_decref(got);
}

static void test_odd_values(void **state)
{
    (void)state;
    struct status_destination dest = {.name = "bad \xff name", .lag_seconds = INFINITY};
    struct status_report r = {.destinations = &dest, .ndestinations = 1};
    json_t *got = status_report_json(&r);
    assert_non_null(got);
    char *text = json_dumps(got, 0);
    assert_non_null(strstr(text, "bad ? name"));
    assert_non_null(strstr(text, "\"lag_seconds\": null"));
    free(text);
    json_decref(got);
    /* the text form of something else entirely */
    CLEANUP_BUF struct buf out = {0};
    json_t *odd = json_pack("{s:i, s:[i,n], s:s}", "state", 3, "tables", 1, "source", "x");
    status_json_render_text(odd, &out);
    status_json_render_tables(odd, &out);
    json_decref(odd);
}

static void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    size_t n = strlen(line);
    while (at != NULL && !((at == text || at[-1] == '\n') && (at[n] == '\n')))
        at = strstr(at + 1, line);
    if (at == NULL)
        fail_msg("no line \"%s\"", line);
}

static void test_metrics(void **state)
{
    (void)state;
    CLEANUP_BUF struct buf out = {0};
    metrics_reset();
    metric_inc(METRIC_XACTS_COMMITTED, 3);
    metric_gauge(METRIC_SHADOW_REPLAY_LSN, 0x7fffffffffff);
    metric_add(metric_series_get(METRIC_FILTER_RECORDS, "Heap", "to_decoder"), 5);
    metric_add(metric_series_get(METRIC_FILTER_RECORDS, "Heap", "to_shadow"), 1);
    assert_ptr_equal(metric_series_get(METRIC_FILTER_RECORDS, "Heap", "to_decoder"),
                     metric_series_get(METRIC_FILTER_RECORDS, "Heap", "to_decoder"));
    metric_add(metric_series_get(METRIC_REJECTS, "a\"b\\c\nd", "null"), 1);
    metric_set_double(metric_series_get(METRIC_SHADOW_LAG_SECONDS, NULL, NULL), INFINITY);
    metric_observe_ns(metric_series_get(METRIC_HOLD_SECONDS, NULL, NULL), 3000000);
    metric_observe_ns(metric_series_get(METRIC_HOLD_SECONDS, NULL, NULL), UINT64_C(60000000000));
    metrics_render(&out);
    const char *text = buf_cstr(&out);
    assert_line(text, "# TYPE walshadow_xacts_committed_total counter");
    assert_line(text, "walshadow_xacts_committed_total 3");
    assert_line(text, "walshadow_xacts_aborted_total 0");
    assert_line(text, "walshadow_shadow_replay_lsn 140737488355327");
    assert_line(text, "walshadow_filter_records_total{rmgr=\"Heap\",route=\"to_decoder\"} 5");
    assert_line(text, "walshadow_rejects_total{table=\"a\\\"b\\\\c\\nd\",action=\"null\"} 1");
    assert_line(text, "walshadow_shadow_apply_lag_seconds +Inf");
    assert_line(text, "walshadow_hold_seconds_bucket{le=\"0.0025\"} 0");
    assert_line(text, "walshadow_hold_seconds_bucket{le=\"0.005\"} 1");
    assert_line(text, "walshadow_hold_seconds_bucket{le=\"30\"} 1");
    assert_line(text, "walshadow_hold_seconds_bucket{le=\"+Inf\"} 2");
    assert_line(text, "walshadow_hold_seconds_sum 60.003000");
    assert_line(text, "walshadow_hold_seconds_count 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
