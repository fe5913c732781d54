/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "push/push.h"
#include "push/target.h"

static int from_env(struct ltn_push_conf *c, const char *const *env)
{
    struct ltn_errinfo info = {0};
    ltn_push_conf_init(c);
    return ltn_push_conf_env(c, (char *const *)(uintptr_t)env, &info);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void where_it_goes(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        const char *protocol;
        bool grpc;
        const char *address; /* NULL: refused */
    } cases[] = {
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", NULL, false, "http://c:4318/v1/metrics"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318/base/", NULL, false,
         "http://c:4318/base/v1/metrics"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", NULL, false, "http://c/v1/metrics"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c/x", NULL, false, "http://c/x"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", NULL, true, "c:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "grpc", true, "c:80"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:9999", "grpc", true, "c:9999"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]:4317/", "grpc", true, "[::1]:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=[::1]", "grpc", true, "[::1]:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4318", NULL, false, "https://c:4318/v1/metrics"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c", NULL, false, "https://c/v1/metrics"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4317", NULL, true, "c:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c", "grpc", true, "c:443"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=ftp://c", "http/protobuf", false, NULL},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c d", NULL, false, NULL},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct ltn_push_conf c;
        struct ltn_push_sender s;
        struct ltn_errinfo info = {0};
        char protocol[64];
        (void)snprintf(protocol, sizeof(protocol), "OTEL_EXPORTER_OTLP_PROTOCOL=%s",
                       cases[i].protocol != NULL ? cases[i].protocol : "");
        assert_int_equal(from_env(&c, ENV(cases[i].env, protocol)), 0);
        int rc = ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, &info);
        if (cases[i].address == NULL
                ? rc == 0
                : rc != 0 || s.grpc != cases[i].grpc || strcmp(s.address, cases[i].address) != 0) {
            fail_msg("case %zu: rc %d (%s), grpc %d, \"%s\"", i, rc, info.msg, s.grpc, s.address);
        }
        ltn_push_sender_done(&s);
    }
}

static void a_plain_collector_is_grpc(void **state)
{
    (void)state;
    struct ltn_push_conf c;
    struct ltn_push_sender s;
    struct ltn_errinfo info = {0};
    ltn_push_conf_init(&c);
    assert_false(ltn_push_conf_enabled(&c));
    assert_int_equal(ltn_push_conf_endpoint(&c, "collector.lanterne", &info), 0);
    assert_true(ltn_push_conf_enabled(&c));
    assert_int_equal(ltn_push_sender_init(&s, &c.logs, LTN_RECORD_LOGS, &info), 0);
    assert_true(s.grpc);
    assert_string_equal(s.address, "collector.lanterne:4317");
    assert_non_null(strstr(s.path, "LogsService"));
    ltn_push_sender_done(&s);
}

static void own_variables_win(void **state)
{
    (void)state;
    struct ltn_push_conf c;
    assert_int_equal(
        from_env(&c, ENV("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=2000",
                         "OTEL_EXPORTER_OTLP_TIMEOUT=3000", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
                         "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION=none",
                         "OTEL_EXPORTER_OTLP_CERTIFICATE=/ca.pem", "OTEL_EXPORTER_OTLP_ENDPOINT=")),
        0);
    assert_int_equal(c.metrics.timeout_ns, 2 * LTN_NS_PER_S);
    assert_int_equal(c.logs.timeout_ns, 3 * LTN_NS_PER_S);
    assert_true(c.metrics.gzip);
    assert_false(c.logs.gzip);
    assert_string_equal(c.logs.ca_file, "/ca.pem");
    assert_string_equal(c.metrics.endpoint, "");
    assert_int_equal(from_env(&c, ENV("OTEL_EXPORTER_OTLP_TIMEOUT=soon")), LTN_ERR_CONFIG);
    assert_int_equal(from_env(&c, ENV("OTEL_EXPORTER_OTLP_PROTOCOL=http/json")), LTN_ERR_CONFIG);
    assert_int_equal(from_env(&c, ENV("OTEL_EXPORTER_OTLP_COMPRESSION=lzma")), LTN_ERR_CONFIG);
}

static void headers_are_decoded_and_checked(void **state)
{
    (void)state;
    struct ltn_push_conf c;
    struct ltn_push_sender s;
    struct ltn_errinfo info = {0};
    ltn_push_conf_init(&c);
    assert_int_equal(ltn_push_conf_endpoint(&c, "c:1", &info), 0);
    (void)snprintf(c.metrics.headers, sizeof(c.metrics.headers),
                   " X-Tenant = a%%20b%%2Cc ,,y=%%zz%%4,");
    assert_int_equal(ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, &info), 0);
    assert_int_equal(s.header_count, 2);
    assert_string_equal(s.headers[0].name, "x-tenant");
    assert_string_equal(s.headers[0].value, "a b,c");
    assert_string_equal(s.headers[1].value, "%zz%4");
    ltn_push_sender_done(&s);
    static const char *const bad[] = {"a=b%0d%0aevil: 1", ":path=x", "no value", "=v", "a b=c"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        (void)snprintf(c.metrics.headers, sizeof(c.metrics.headers), "%s", bad[i]);
        assert_int_equal(ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, &info),
                         LTN_ERR_CONFIG);
        ltn_push_sender_done(&s);
    }
}

static void tls_by_scheme_and_variable(void **state)
{
    (void)state;
    static const struct {
        const char *env[3];
        bool secure;
    } cases[] = {
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4317"}, true},
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317"}, false},
        /* Without a scheme only INSECURE makes it cleartext; a scheme is stronger than it. */
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=c:4317"}, true},
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=c:4317", "OTEL_EXPORTER_OTLP_INSECURE=TRUE"}, false},
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=c:4317", "OTEL_EXPORTER_OTLP_INSECURE=true",
          "OTEL_EXPORTER_OTLP_METRICS_INSECURE=false"},
         true},
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4317", "OTEL_EXPORTER_OTLP_INSECURE=true"}, true},
        {{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "OTEL_EXPORTER_OTLP_INSECURE=false"}, false},
    };
    struct ltn_push_conf c;
    struct ltn_push_sender s;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        const char *const *e = cases[i].env;
        assert_int_equal(from_env(&c, ENV(e[0], e[1], e[1] != NULL ? e[2] : NULL)), 0);
        assert_int_equal(ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, NULL), 0);
        if (!s.grpc || s.secure != cases[i].secure || (s.tls != NULL) != cases[i].secure) {
            fail_msg("case %zu: grpc %d, secure %d", i, s.grpc, s.secure);
        }
        ltn_push_sender_done(&s);
    }
    /* The option means cleartext without a scheme. */
    ltn_push_conf_init(&c);
    assert_int_equal(ltn_push_conf_endpoint(&c, "c", NULL), 0);
    assert_int_equal(ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, NULL), 0);
    assert_false(s.secure);
    ltn_push_sender_done(&s);
    ltn_push_conf_init(&c);
    assert_int_equal(ltn_push_conf_endpoint(&c, "https://c:4317", NULL), 0);
    assert_int_equal(ltn_push_sender_init(&s, &c.logs, LTN_RECORD_LOGS, NULL), 0);
    assert_true(s.grpc && s.secure);
    ltn_push_sender_done(&s);
}

static void certificates_are_named_and_read(void **state)
{
    (void)state;
    struct ltn_push_conf c;
    struct ltn_push_sender s;
    struct ltn_errinfo info = {0};
    assert_int_equal(from_env(&c, ENV("OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4317",
                                      "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.pem",
                                      "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/c.pem",
                                      "OTEL_EXPORTER_OTLP_CLIENT_KEY=/c.key",
                                      "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY=/l.key",
                                      "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION=zstd")),
                     0);
    assert_string_equal(c.metrics.cert_file, "/c.pem");
    assert_string_equal(c.metrics.key_file, "/c.key");
    assert_string_equal(c.logs.key_file, "/l.key");
    assert_true(c.metrics.zstd && !c.metrics.gzip && c.logs.gzip && !c.logs.zstd);
    assert_int_equal(ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, &info),
                     LTN_ERR_CONFIG);
    assert_non_null(strstr(info.msg, "/nowhere/ca.pem"));
    ltn_push_sender_done(&s);
    const struct ltn_push_tls_conf own = {"/own.pem", "", "", "collector.example"};
    assert_int_equal(ltn_push_conf_tls(&c, &own, NULL), 0);
    assert_string_equal(c.metrics.ca_file, "/own.pem");
    assert_string_equal(c.metrics.cert_file, "/c.pem");
    assert_string_equal(c.logs.server_name, "collector.example");
    /* Another name than the host's is nothing that HTTP knows. */
    ltn_push_conf_init(&c);
    assert_int_equal(ltn_push_conf_endpoint(&c, "https://c", NULL), 0);
    assert_int_equal(
        ltn_push_conf_tls(&c, &(struct ltn_push_tls_conf){"", "", "", "collector.example"}, NULL),
        0);
    assert_int_equal(ltn_push_sender_init(&s, &c.metrics, LTN_RECORD_METRICS, &info),
                     LTN_ERR_CONFIG);
    ltn_push_sender_done(&s);
    assert_int_equal(from_env(&c, ENV("OTEL_EXPORTER_OTLP_INSECURE=perhaps")), LTN_ERR_CONFIG);
}

static void what_is_not_done_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *env, *said; /* NULL: nothing */
    } cases[] = {
        {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta", "cumulative"},
        {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=lowmemory", "cumulative"},
        {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=Cumulative", NULL},
        {"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=explicit_bucket_histogram",
         "exponential"},
        {"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION="
         "base2_exponential_bucket_histogram",
         NULL},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t", "no such signal"},
        {"OTEL_EXPORTER_OTLP_SPAN_INSECURE=true", "not known"},
        {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINTS=http://l", "not known"},
        {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://l", NULL},
        {"OTEL_EXPORTER_OTLP_UNSET=", NULL},
        {"OTEL_SERVICE_NAME=x", NULL},
    };
    struct ltn_push_conf c;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        assert_int_equal(from_env(&c, ENV(cases[i].env)), 0);
        assert_int_equal(c.note_count, cases[i].said != NULL);
        if (cases[i].said != NULL) {
            assert_int_equal(strncmp(c.notes[0], cases[i].env, strcspn(cases[i].env, "=")), 0);
            assert_non_null(strstr(c.notes[0], cases[i].said));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_it_goes),
        cmocka_unit_test(a_plain_collector_is_grpc),
        cmocka_unit_test(own_variables_win),
        cmocka_unit_test(headers_are_decoded_and_checked),
        cmocka_unit_test(tls_by_scheme_and_variable),
        cmocka_unit_test(certificates_are_named_and_read),
        cmocka_unit_test(what_is_not_done_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
