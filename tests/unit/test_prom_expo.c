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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negotiation),        cmocka_unit_test(text_format),
        cmocka_unit_test(openmetrics_format), cmocka_unit_test(metric_names),
        cmocka_unit_test(label_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
