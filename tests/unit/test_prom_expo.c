/* SPDX-License-Identifier: Apache-2.0 */
/* Exposition formats, negotiation, and names from OTLP. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "prom/accept.h"
#include "prom/expo.h"
#include "prom/name.h"

static void negotiation(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        enum ltn_prom_format want;
    } cases[] = {
        {NULL, LTN_PROM_TEXT},
        {"", LTN_PROM_TEXT},
        {"*/*", LTN_PROM_TEXT},
        {"text/html", LTN_PROM_TEXT},
        {"text/plain;version=0.0.4", LTN_PROM_TEXT},
        {"application/openmetrics-text", LTN_PROM_OPENMETRICS},
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
         "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         LTN_PROM_OPENMETRICS},
        {"application/openmetrics-text;version=2.0.0", LTN_PROM_TEXT},
        {"application/openmetrics-text;version=1.0.0;q=0.3, text/plain;q=0.9", LTN_PROM_TEXT},
        {"application/openmetrics-text;q=0", LTN_PROM_TEXT},
        {"text/plain;q=0.5, application/openmetrics-text; q=0.6, /;q=0.1", LTN_PROM_OPENMETRICS},
        {";;;,,,q=,", LTN_PROM_TEXT},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++)
        assert_int_equal(ltn_prom_negotiate(cases[i].accept), cases[i].want);
}

static void write_sample_set(struct ltn_buf *b, enum ltn_prom_format f)
{
    static const double bounds[] = {0.1, 1, 10};
    static const uint64_t counts[] = {2, 3, 0, 1};
    struct ltn_prom p;
    struct ltn_prom_label l[] = {{"node", "a\"b\\c\nd"}, {"x", "\xff ok"}};
    ltn_prom_begin(&p, b, f);
    ltn_prom_family(&p, "calls_total", LTN_PROM_COUNTER, NULL, "a \"help\"\nline \\");
    ltn_prom_sample(&p, l, 2, 5);
    ltn_prom_family(&p, "age_seconds", LTN_PROM_GAUGE, "seconds", "Age.");
    ltn_prom_sample(&p, NULL, 0, (double)NAN);
    ltn_prom_sample(&p, l, 1, -(double)INFINITY);
    ltn_prom_family(&p, "wait_seconds", LTN_PROM_HISTOGRAM, "seconds", "Wait.");
    ltn_prom_histogram(&p, l + 1, 1, &(struct ltn_prom_buckets){bounds, counts, 3, 12.5});
    ltn_prom_end(&p);
}

static void text_format(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    write_sample_set(&b, LTN_PROM_TEXT);
    assert_string_equal(ltn_buf_str(&b), "# HELP calls_total a \"help\"\\nline \\\\\n"
                                         "# TYPE calls_total counter\n"
                                         "calls_total{node=\"a\\\"b\\\\c\\nd\",x=\"? ok\"} 5\n"
                                         "# HELP age_seconds Age.\n"
                                         "# TYPE age_seconds gauge\n"
                                         "age_seconds NaN\n"
                                         "age_seconds{node=\"a\\\"b\\\\c\\nd\"} -Inf\n"
                                         "# HELP wait_seconds Wait.\n"
                                         "# TYPE wait_seconds histogram\n"
                                         "wait_seconds_bucket{x=\"? ok\",le=\"0.1\"} 2\n"
                                         "wait_seconds_bucket{x=\"? ok\",le=\"1.0\"} 5\n"
                                         "wait_seconds_bucket{x=\"? ok\",le=\"10.0\"} 5\n"
                                         "wait_seconds_bucket{x=\"? ok\",le=\"+Inf\"} 6\n"
                                         "wait_seconds_sum{x=\"? ok\"} 12.5\n"
                                         "wait_seconds_count{x=\"? ok\"} 6\n");
    ltn_buf_done(&b);
}

static void openmetrics_format(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    write_sample_set(&b, LTN_PROM_OPENMETRICS);
    const char *s = ltn_buf_str(&b);
    assert_non_null(strstr(s, "# TYPE calls counter\n"));
    assert_non_null(strstr(s, "# HELP calls a \\\"help\\\"\\nline \\\\\n"));
    assert_non_null(strstr(s, "calls_total{node="));
    assert_null(strstr(s, "# TYPE calls_total"));
    assert_non_null(strstr(s, "# UNIT age_seconds seconds\n"));
    assert_string_equal(s + strlen(s) - 6, "# EOF\n");
    ltn_buf_done(&b);
}

static void metric_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *unit;
        enum ltn_prom_type type;
        const char *want; /* NULL: refused */
    } cases[] = {
        {"gpu.cuda.operation.count", "{call}", LTN_PROM_COUNTER, "gpu_cuda_operation_count_total"},
        {"gpu.cuda.operation.io", "By", LTN_PROM_COUNTER, "gpu_cuda_operation_io_bytes_total"},
        {"gpu.cuda.operation.duration", "s", LTN_PROM_HISTOGRAM,
         "gpu_cuda_operation_duration_seconds"},
        {"hw.gpu.utilization", "1", LTN_PROM_GAUGE, "hw_gpu_utilization_ratio"},
        {"hw.errors", "{error}", LTN_PROM_COUNTER, "hw_errors_total"},
        {"hw.temperature", "Cel", LTN_PROM_GAUGE, "hw_temperature_celsius"},
        {"lanterne.gpu.clock.frequency", "Hz", LTN_PROM_GAUGE,
         "lanterne_gpu_clock_frequency_hertz"},
        {"disk.rate", "By/s", LTN_PROM_GAUGE, "disk_rate_bytes_per_second"},
        {"requests.per", "1/s", LTN_PROM_GAUGE, "requests_per_per_second"},
        /* an annotation is no unit, and what stands with it may be one */
        {"packets", "{packet}/s", LTN_PROM_GAUGE, "packets_per_second"},
        {"size", "By{raw}", LTN_PROM_GAUGE, "size_bytes"},
        {"rate", "By/{request}", LTN_PROM_GAUGE, "rate_bytes"},
        {"speed", "m/s", LTN_PROM_GAUGE, "speed_meters_per_second"},
        {"speed", "km/h", LTN_PROM_GAUGE, "speed_km_per_hour"},
        {"hits", "1/m", LTN_PROM_GAUGE, "hits_per_minute"},
        {"x", "m/s/s", LTN_PROM_GAUGE, "x_meters_per_s_s"},
        /* every unit of the table */
        {"x", "d", LTN_PROM_GAUGE, "x_days"},
        {"x", "h", LTN_PROM_GAUGE, "x_hours"},
        {"x", "min", LTN_PROM_GAUGE, "x_minutes"},
        {"x", "ms", LTN_PROM_GAUGE, "x_milliseconds"},
        {"x", "us", LTN_PROM_GAUGE, "x_microseconds"},
        {"x", "ns", LTN_PROM_GAUGE, "x_nanoseconds"},
        {"x", "KiBy", LTN_PROM_GAUGE, "x_kibibytes"},
        {"x", "MiBy", LTN_PROM_GAUGE, "x_mebibytes"},
        {"x", "GiBy", LTN_PROM_GAUGE, "x_gibibytes"},
        {"x", "TiBy", LTN_PROM_GAUGE, "x_tibibytes"},
        {"x", "KBy", LTN_PROM_GAUGE, "x_kilobytes"},
        {"x", "kBy", LTN_PROM_GAUGE, "x_kilobytes"},
        {"x", "MBy", LTN_PROM_GAUGE, "x_megabytes"},
        {"x", "GBy", LTN_PROM_GAUGE, "x_gigabytes"},
        {"x", "TBy", LTN_PROM_GAUGE, "x_terabytes"},
        {"x", "m", LTN_PROM_GAUGE, "x_meters"},
        {"x", "V", LTN_PROM_GAUGE, "x_volts"},
        {"x", "A", LTN_PROM_GAUGE, "x_amperes"},
        {"x", "J", LTN_PROM_GAUGE, "x_joules"},
        {"x", "W", LTN_PROM_GAUGE, "x_watts"},
        {"x", "g", LTN_PROM_GAUGE, "x_grams"},
        {"x", "%", LTN_PROM_GAUGE, "x_percent"},
        /* the unit is there already only when it stands at the end, and as a word */
        {"bytes.read", "By", LTN_PROM_GAUGE, "bytes_read_bytes"},
        {"kilobytes", "By", LTN_PROM_GAUGE, "kilobytes_bytes"},
        {"seconds", "s", LTN_PROM_HISTOGRAM, "seconds"},
        /* "total" goes last, once, and stays where it is no ending */
        {"total.requests", "1", LTN_PROM_COUNTER, "total_requests_total"},
        {"io.total", "By", LTN_PROM_COUNTER, "io_bytes_total"},
        {"io.total", "By", LTN_PROM_GAUGE, "io_total_bytes"},
        {"subtotal", "", LTN_PROM_COUNTER, "subtotal_total"},
        /* a share of 1: gauges only, sums that may fall are no gauges here */
        {"queue", "1", LTN_PROM_UNKNOWN, "queue"},
        {"share", "1", LTN_PROM_HISTOGRAM, "share"},
        {"share.ratio", "1", LTN_PROM_GAUGE, "share_ratio"},
        {"-9lives", "", LTN_PROM_GAUGE, "_9lives"},
        {"__a__b__", "", LTN_PROM_GAUGE, "a_b"},
        {"temp\xc3\xa9rature", "", LTN_PROM_GAUGE, "temp_rature"},
        {"a\x00"
         "b",
         "", LTN_PROM_GAUGE, "a"},
        {"a.total", "1", LTN_PROM_COUNTER, "a_total"},
        {"latency.seconds", "s", LTN_PROM_GAUGE, "latency_seconds"},
        {"latency.seconds.total", "s", LTN_PROM_COUNTER, "latency_seconds_total"},
        {"fan", "rpm", LTN_PROM_GAUGE, "fan_rpm"},
        {"9lives", "", LTN_PROM_GAUGE, "_9lives"},
        {"a..b--c", "", LTN_PROM_GAUGE, "a_b_c"},
        {"ns:x", "", LTN_PROM_GAUGE, "ns:x"},
        {"...", "", LTN_PROM_GAUGE, NULL},
        {"", "", LTN_PROM_GAUGE, NULL},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        char out[LTN_PROM_NAME_BYTES];
        bool ok = ltn_prom_metric_name((struct ltn_prom_text){cases[i].name, strlen(cases[i].name)},
                                       (struct ltn_prom_text){cases[i].unit, strlen(cases[i].unit)},
                                       cases[i].type, out, NULL);
        assert_int_equal(ok, cases[i].want != NULL);
        if (ok)
            assert_string_equal(out, cases[i].want);
    }
    char out[LTN_PROM_NAME_BYTES], longest[4096];
    memset(longest, 'a', sizeof(longest));
    assert_false(ltn_prom_metric_name((struct ltn_prom_text){longest, sizeof(longest)},
                                      (struct ltn_prom_text){"s", 1}, LTN_PROM_GAUGE, out, NULL));
}

static void label_names(void **state)
{
    (void)state;
    static const struct {
        const char *key, *want;
    } cases[] = {
        {"hw.id", "hw_id"},      {"a..b", "a_b"},
        {"1st", "key_1st"},      {"le", "exported_le"},
        {"job", "exported_job"}, {"instance", "exported_instance"},
        {"k\xc3\xa4se", "k_se"}, {"", NULL},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        char out[LTN_PROM_NAME_BYTES];
        bool ok =
            ltn_prom_label_name((struct ltn_prom_text){cases[i].key, strlen(cases[i].key)}, out);
        assert_int_equal(ok, cases[i].want != NULL);
        if (ok)
            assert_string_equal(out, cases[i].want);
    }
}

static void floats(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {10, "10.0"},
        {0.005, "0.005"},
        {0.1, "0.1"},
        {0.999, "0.999"},
        {9.999, "9.999"},
        {1e-10, "1e-10"},
        {1e-5, "1e-05"},
        {0.0001, "0.0001"},
        {100000, "100000.0"},
        {1e6, "1e+06"},
        {1e10, "1e+10"},
        {1234567, "1.234567e+06"},
        {123456.5, "123456.5"},
        {2.5e-7, "2.5e-07"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {(double)INFINITY, "+Inf"},
        {-(double)INFINITY, "-Inf"},
        {(double)NAN, "NaN"},
        {0.1 + 0.2, "0.30000000000000004"},
        {-2.5, "-2.5"},
        {1.0 / 3, "0.3333333333333333"},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        char out[LTN_PROM_FLOAT_BYTES];
        ltn_prom_float(cases[i].v, out);
        assert_string_equal(out, cases[i].want);
    }
    uint64_t x = 88172645463325252ULL;
    for (int i = 0; i < 200000; i++) { /* whatever it is, it reads back the same */
        char out[LTN_PROM_FLOAT_BYTES];
        double v, back;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(&v, &x, sizeof(v));
        if (!isfinite(v))
            continue;
        ltn_prom_float(v, out);
        back = strtod(out, NULL);
        assert_memory_equal(&v, &back, sizeof(v));
    }
}

static void content_types(void **state)
{
    (void)state;
    static const struct {
        const char *accept, *want;
    } cases[] = {
        {NULL, "text/plain; version=0.0.4; charset=utf-8"},
        {"*/*", "text/plain; version=0.0.4; charset=utf-8"},
        {"application/json", "text/plain; version=0.0.4; charset=utf-8"},
        {"application/openmetrics-text; version=0.0.1",
         "application/openmetrics-text; version=0.0.1; charset=utf-8"},
        /* what Prometheus 3 asks for */
        {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;"
         "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
         "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"},
        {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
         "encoding=delimited;q=0.6,text/plain;version=1.0.0;escaping=dots;q=0.4",
         "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"},
        /* of equals, the first */
        {"text/plain, application/openmetrics-text", "text/plain; version=0.0.4; charset=utf-8"},
        {"Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.9 , text/plain;q=0.8",
         "application/openmetrics-text; version=1.0.0; charset=utf-8"},
        {"application/openmetrics-text;x=\"a,b;q=0\"",
         "application/openmetrics-text; version=1.0.0; charset=utf-8"},
        {"application/openmetrics-text;q=2", "text/plain; version=0.0.4; charset=utf-8"},
        {"application/openmetrics-text;q=", "text/plain; version=0.0.4; charset=utf-8"},
        {"application/openmetrics-textual", "text/plain; version=0.0.4; charset=utf-8"},
        {"text/plain;version=9;q=1,application/openmetrics-text;q=0.1",
         "application/openmetrics-text; version=1.0.0; charset=utf-8"},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct ltn_prom_choice c;
        ltn_prom_choose(cases[i].accept, &c);
        assert_string_equal(c.content_type, cases[i].want);
        assert_int_equal(c.format, strncmp(cases[i].want, "text", 4) == 0 ? LTN_PROM_TEXT
                                                                          : LTN_PROM_OPENMETRICS);
    }
}

static void infos_and_units(void **state)
{
    (void)state;
    for (int om = 0; om < 2; om++) {
        struct ltn_buf b;
        struct ltn_prom p;
        ltn_buf_init(&b, 1 << 16);
        ltn_prom_begin(&p, &b, om ? LTN_PROM_OPENMETRICS : LTN_PROM_TEXT);
        ltn_prom_family(&p, "target_info", LTN_PROM_INFO, "ratio", "H.");
        ltn_prom_sample_text(&p, "a=\"b\"", 1);
        ltn_prom_family(&p, "io_bytes_total", LTN_PROM_COUNTER, "bytes", "H.");
        ltn_prom_sample_text(&p, "", 0.1);
        ltn_prom_family(&p, "bytes", LTN_PROM_GAUGE, "bytes", "");
        ltn_prom_family(&p, "xbytes", LTN_PROM_GAUGE, "bytes", NULL);
        assert_string_equal(ltn_buf_str(&b),
                            om ? "# HELP target H.\n# TYPE target info\ntarget_info{a=\"b\"} 1\n"
                                 "# HELP io_bytes H.\n# TYPE io_bytes counter\n"
                                 "# UNIT io_bytes bytes\nio_bytes_total 0.1\n"
                                 "# TYPE bytes gauge\n# TYPE xbytes gauge\n"
                               : "# HELP target_info H.\n# TYPE target_info gauge\n"
                                 "target_info{a=\"b\"} 1\n"
                                 "# HELP io_bytes_total H.\n# TYPE io_bytes_total counter\n"
                                 "io_bytes_total 0.1\n"
                                 "# TYPE bytes gauge\n# TYPE xbytes gauge\n");
        ltn_buf_done(&b);
    }
}

static void claims(void **state)
{
    (void)state;
    char c[LTN_PROM_CLAIMS][LTN_PROM_CLAIM_BYTES];
    assert_int_equal(ltn_prom_claims("foo_total", LTN_PROM_COUNTER, c), 3);
    assert_string_equal(c[0], "foo");
    assert_string_equal(c[1], "foo_total");
    assert_string_equal(c[2], "foo_created");
    assert_int_equal(ltn_prom_claims("foo", LTN_PROM_HISTOGRAM, c), 5);
    assert_string_equal(c[1], "foo_bucket");
    assert_int_equal(ltn_prom_claims("foo", LTN_PROM_SUMMARY, c), 4);
    assert_int_equal(ltn_prom_claims("target_info", LTN_PROM_INFO, c), 2);
    assert_string_equal(c[0], "target");
    assert_int_equal(ltn_prom_claims("foo_total", LTN_PROM_GAUGE, c), 1);
    assert_string_equal(c[0], "foo_total");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negotiation),
        cmocka_unit_test(text_format),
        cmocka_unit_test(openmetrics_format),
        cmocka_unit_test(metric_names),
        cmocka_unit_test(label_names),
        cmocka_unit_test(floats),
        cmocka_unit_test(content_types),
        cmocka_unit_test(infos_and_units),
        cmocka_unit_test(claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
