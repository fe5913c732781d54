/* SPDX-License-Identifier: Apache-2.0 */
/* What alerts say, the bodies they go into, signatures, URLs, backoff. */
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"

#include "alert/internal.h"

#define T0 (1700000000ULL * LTN_NS_PER_S)

static struct ltn_straggler_verdict verdict(void)
{
    return (struct ltn_straggler_verdict){.job = "a/b \"c\"",
                                          .key = "3",
                                          .node = "n1",
                                          .rank = 3,
                                          .effect_pct = 49.06,
                                          .peers = 7,
                                          .cause = "cpu_contention",
                                          .cause_detail = "`logrotate` held",
                                          .explained_share = 0.9,
                                          .tier = "ebpf",
                                          .since_ns = T0,
                                          .opened_at_ns = T0 + 5 * LTN_NS_PER_S,
                                          .gpu_hours_lost = 1.5};
}

static void test_verdict(void **state)
{
    (void)state;
    struct ltn_alert_content c;
    struct ltn_straggler_verdict v = verdict();
    assert_int_equal(ltn_alert_from_verdict("http://c:8420//", &v, &c), 0);
    assert_string_equal(c.labels, "{\"alertname\":\"LanterneStraggler\",\"severity\":\"warning\","
                                  "\"job\":\"a/b \\\"c\\\"\",\"rank\":\"3\",\"node\":\"n1\","
                                  "\"cause\":\"cpu_contention\"}");
    assert_string_equal(c.group_key,
                        "{}:{\"alertname\":\"LanterneStraggler\",\"job\":\"a/b \\\"c\\\"\"}");
    assert_string_equal(c.url, "http://c:8420/#/jobs/a%2Fb%20%22c%22/ranks/3");
    assert_non_null(strstr(c.annotations, "\"effect_pct\":\"49.1\""));
    assert_non_null(strstr(c.annotations, "\"explained_share\":\"0.90\""));
    assert_non_null(strstr(c.annotations, "\"gpu_hours_lost\":\"1.500\""));
    assert_true(c.starts_ns == T0);
    ltn_alert_content_done(&c);
    v.explained_share = -1; /* cannot be said: not a number then */
    v.cause[0] = '\0';
    assert_int_equal(ltn_alert_from_verdict("", &v, &c), 0);
    assert_null(strstr(c.annotations, "explained_share"));
    assert_null(strstr(c.labels, "cause"));
    assert_string_equal(c.url, "");
    ltn_alert_content_done(&c);
}

static void test_incident_severity(void **state)
{
    (void)state;
    static const struct {
        int32_t number;
        const char *label;
    } rows[] = {{21, "critical"}, {17, "warning"}, {13, "warning"}, {9, "info"}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(rows); i++) {
        struct ltn_fleet_incident in = {.node = "n",
                                        .id = "i",
                                        .kind = "oom",
                                        .rank = -1,
                                        .severity_number = rows[i].number,
                                        .explained_share = -1,
                                        .opened_at_ns = T0};
        struct ltn_alert_content c;
        char want[64];
        (void)snprintf(want, sizeof(want), "\"severity\":\"%s\"", rows[i].label);
        assert_int_equal(ltn_alert_from_incident("", &in, &c), 0);
        assert_non_null(strstr(c.labels, want));
        assert_null(strstr(c.labels, "rank"));
        ltn_alert_content_done(&c);
    }
}

static void test_bodies(void **state)
{
    (void)state;
    struct ltn_straggler_verdict v = verdict();
    struct ltn_alert e = {.fingerprint = "0123456789abcdef"}, *list[] = {&e, &e};
    struct ltn_buf b;
    ltn_buf_init(&b, LTN_ALERT_BODY_BYTES);
    assert_int_equal(ltn_alert_from_verdict("http://c", &v, &e.c), 0);
    ltn_alert_render_v2(&b, list, 2, T0 + 10 * LTN_NS_PER_S, 120 * LTN_NS_PER_S);
    assert_int_equal(ltn_buf_error(&b), 0);
    assert_non_null(strstr(ltn_buf_str(&b), "\"startsAt\":\"2023-11-14T22:13:20.000Z\","
                                            "\"endsAt\":\"2023-11-14T22:15:30.000Z\","
                                            "\"generatorURL\":\"http://c/#/jobs/"));
    assert_non_null(strstr(ltn_buf_str(&b), "},{\"labels\""));
    ltn_buf_reset(&b);
    ltn_alert_render_webhook(&b, &e, "http://c");
    assert_non_null(strstr(ltn_buf_str(&b), "\"endsAt\":\"0001-01-01T00:00:00Z\""));
    assert_non_null(strstr(ltn_buf_str(&b), "\"status\":\"firing\",\"receiver\":\"lanterne\""));
    ltn_buf_reset(&b);
    e.ends_ns = T0 + LTN_NS_PER_S;
    ltn_alert_render_webhook(&b, &e, "");
    assert_non_null(strstr(ltn_buf_str(&b), "\"endsAt\":\"2023-11-14T22:13:21.000Z\""));
    assert_non_null(strstr(ltn_buf_str(&b), "\"version\":\"4\""));
    assert_null(strstr(ltn_buf_str(&b), "firing"));
    ltn_buf_done(&b);
    ltn_alert_content_done(&e.c);
}

static void test_digests(void **state)
{
    (void)state;
    char hex[LTN_ALERT_HEX_BYTES], cut[17];
    assert_int_equal(ltn_alert_digest("abc", 3, hex, sizeof(hex)), 0);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(ltn_alert_digest("abc", 3, cut, sizeof(cut)), 0);
    assert_int_equal(strlen(cut), 16);
    assert_memory_equal(hex, cut, 16);
    assert_int_equal(ltn_alert_sign("Jefe", 1700000000, "{\"a\":1}", 7, hex), 0);
    assert_string_equal(hex, "fa5f6481efc59da48b19c9dc10196c9953e5651f8304b3a318b6b87d70272e0a");
}

static void test_outcomes(void **state)
{
    (void)state;
    static const int accepted[] = {200, 202, 204}, retry[] = {0, 408, 429, 500, 502, 503, 504},
                     rejected[] = {300, 302, 307, 400, 401, 403, 404, 410, 413};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(accepted); i++)
        assert_int_equal(ltn_alert_outcome_of(accepted[i]), LTN_ALERT_ACCEPTED);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(retry); i++)
        assert_int_equal(ltn_alert_outcome_of(retry[i]), LTN_ALERT_RETRY);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(rejected); i++)
        assert_int_equal(ltn_alert_outcome_of(rejected[i]), LTN_ALERT_REJECTED);
}

static void test_backoff(void **state)
{
    (void)state;
    assert_true(ltn_alert_backoff_ns(0, 99 * LTN_NS_PER_S, 0.5) == 0);
    assert_true(ltn_alert_backoff_ns(1, 0, 0.5) == LTN_NS_PER_S);
    assert_true(ltn_alert_backoff_ns(3, 0, 0) == 3200 * LTN_NS_PER_MS);
    assert_true(ltn_alert_backoff_ns(100, 0, 1) == 60 * LTN_NS_PER_S);
    assert_true(ltn_alert_backoff_ns(1, 30 * LTN_NS_PER_S, 0.5) == 30 * LTN_NS_PER_S);
    assert_true(ltn_alert_backoff_ns(100, 30 * LTN_NS_PER_S, 0.5) == 60 * LTN_NS_PER_S);
    assert_true(ltn_alert_backoff_ns(1, 86400 * LTN_NS_PER_S, 0.5) == 300 * LTN_NS_PER_S);
}

static void test_urls(void **state)
{
    (void)state;
    static const char *const good[] = {"http://h", "https://h:1/x?y=1", "http://u:p@h/",
                                       "http://[::1]:9093"};
    static const char *const bad[] = {
        "",           "h",           "ftp://h",      "http://",
        "http:///x",  "http://u@",   "http://:1",    "file:///etc/passwd",
        "http://h/#", "http://h/ x", "http://h\\@x", "http://h\n"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(good); i++)
        assert_int_equal(ltn_alerts_check_url(good[i], NULL), 0);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        struct ltn_errinfo info = {0, ""};
        assert_int_equal(ltn_alerts_check_url(bad[i], &info), LTN_ERR_CONFIG);
        assert_true(info.msg[0] != '\0');
    }
}

static void test_log_name_has_no_secret(void **state)
{
    (void)state;
    struct ltn_alerts a = {0};
    assert_int_equal(
        ltn_alert_target_init(&a, LTN_ALERT_WEBHOOK, "https://user:pass@h:1/token?key=x", NULL), 0);
    assert_string_equal(a.targets[0].shown, "https://h:1");
    assert_int_equal(ltn_alert_target_init(&a, LTN_ALERT_ALERTMANAGER, "http://am/base//", NULL),
                     0);
    assert_string_equal(a.targets[1].url, "http://am/base/api/v2/alerts");
    assert_string_equal(a.targets[1].stats.name, "alertmanager-0");
    for (size_t i = 0; i < a.target_count; i++)
        ltn_alert_target_done(&a.targets[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdict),  cmocka_unit_test(test_incident_severity),
        cmocka_unit_test(test_bodies),   cmocka_unit_test(test_digests),
        cmocka_unit_test(test_outcomes), cmocka_unit_test(test_backoff),
        cmocka_unit_test(test_urls),     cmocka_unit_test(test_log_name_has_no_secret),
    };
    return LTN_RUN_TESTS(tests);
}
