/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/err.h"
#include "cli/health.h"

#define S(n) ((n)*LTN_NS_PER_S)

static struct ltn_health h;
static struct ltn_push_stats push;
static struct ltn_record_stats record;
static struct ltn_health_line lines[LTN_HEALTH_LINES];

static int fresh(void **state)
{
    (void)state;
    h = (struct ltn_health){0};
    push = (struct ltn_push_stats){0};
    record = (struct ltn_record_stats){0};
    return 0;
}

static size_t look(uint64_t second)
{
    return ltn_health_look(&h, S(second), &push, &record, lines);
}

static void says(uint64_t second, enum ltn_log_level level, const char *part)
{
    size_t n = look(second);
    if (n != 1 || lines[0].level != level || strstr(lines[0].text, part) == NULL) {
        fail_msg("at %u s: %zu lines, \"%s\", not \"%s\"", (unsigned)second, n,
                 n > 0 ? lines[0].text : "", part);
    }
}

static void pushing_that_fails_is_told_once_then_seldom_and_its_end(void **state)
{
    (void)state;
    assert_int_equal(look(1), 0);
    push.backoff_ns = 1;
    (void)snprintf(push.last_error, sizeof(push.last_error),
                   "cannot connect to h port 1: Connection refused");
    says(2, LTN_LOG_WARN, "Connection refused; does the collector run");
    assert_int_equal(look(3), 0);
    assert_int_equal(look(61), 0);
    record.outbox_rows = 7;
    says(62, LTN_LOG_WARN, "for 60 s now: cannot connect");
    assert_int_equal(look(361), 0);
    says(362, LTN_LOG_WARN, "(7 requests");
    assert_int_equal(look(2161), 0);
    says(2162, LTN_LOG_WARN, "for 2160 s");
    says(3962, LTN_LOG_WARN, "for 3960 s");
    push.backoff_ns = 0;
    says(3963, LTN_LOG_INFO, "works again after 3961 s; 7 requests");
    assert_int_equal(look(3964), 0);
}

static void the_reason_decides_the_advice(void **state)
{
    (void)state;
    push.backoff_ns = 1;
    push.wrong_credentials = true;
    (void)snprintf(push.last_error, sizeof(push.last_error), "HTTP status 401");
    says(1, LTN_LOG_WARN, "--token-file");
    h = (struct ltn_health){0};
    push.wrong_credentials = false;
    (void)snprintf(push.last_error, sizeof(push.last_error), "cannot resolve nohost: unknown");
    says(1, LTN_LOG_WARN, "DNS");
    static const char *const certificates[] = {"TLS with c: certificate has expired",
                                               "SSL certificate problem: certificate has expired"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(certificates); i++) {
        h = (struct ltn_health){0};
        (void)snprintf(push.last_error, sizeof(push.last_error), "%s", certificates[i]);
        says(1, LTN_LOG_WARN, "--collector-ca-file");
    }
}

static void flapping_is_told_once_a_minute(void **state)
{
    (void)state;
    unsigned told = 0;
    for (uint64_t s = 1; s <= 120; s++) {
        push.backoff_ns = s % 2;
        told += (unsigned)look(s);
    }
    assert_in_range(told, 2, 4);
}

static void what_is_lost_is_told(void **state)
{
    (void)state;
    push.refused = 2;
    (void)snprintf(push.last_refusal, sizeof(push.last_refusal), "too old");
    says(1, LTN_LOG_WARN, "refused 2 more requests for good, they are dropped: too old");
    push.refused = 9;
    assert_int_equal(look(2), 0);
    says(61, LTN_LOG_WARN, "refused 7 more");
    record.outbox_dropped_age = 3;
    says(62, LTN_LOG_WARN, "3 more requests left the outbox unsent");
    push.rejected_points = 5;
    says(63, LTN_LOG_WARN, "5 more data points");
}

static void a_database_that_fails_is_told(void **state)
{
    (void)state;
    record.degraded = true;
    record.failed_rc = LTN_ERR_DISK;
    says(1, LTN_LOG_WARN, ltn_err_str(LTN_ERR_DISK));
    record.windows.dropped[LTN_RECORD_DROP_DISK] = 4;
    says(61, LTN_LOG_WARN, "(4 windows");
    record.degraded = false;
    says(70, LTN_LOG_INFO, "works again");
    record.replaced_files = 1;
    says(71, LTN_LOG_WARN, "a new one was begun");
    assert_int_equal(ltn_health_look(&h, S(72), NULL, &record, lines), 0);
}

static void doubts_about_arguments_are_told_once_for_each_rise(void **state)
{
    (void)state;
    assert_false(ltn_health_impossible(&h, S(1), 0, "cudaMemcpy", lines));
    assert_true(ltn_health_impossible(&h, S(2), 3, "cudaMemcpy", lines));
    assert_int_equal(lines[0].level, LTN_LOG_WARN);
    assert_non_null(strstr(lines[0].text, "3 more calls"));
    assert_non_null(strstr(lines[0].text, "most of cudaMemcpy"));
    assert_false(ltn_health_impossible(&h, S(3), 5, "cudaMemcpy", lines)); /* not so soon */
    assert_false(ltn_health_impossible(&h, S(61), 5, "cudaMemcpy", lines));
    assert_true(ltn_health_impossible(&h, S(62), 5, "cudaMemcpy", lines));
    assert_non_null(strstr(lines[0].text, "2 more calls"));
    assert_false(ltn_health_impossible(&h, S(4000), 5, "cudaMemcpy", lines));
}

static void a_process_of_which_nothing_is_seen_is_told(void **state)
{
    (void)state;
    struct ltn_silence_stats s = {0};
    assert_int_equal(ltn_health_silence(&h, S(1), &s, lines), 0);
    s.silent_now = 1;
    s.first = (struct ltn_silent){
        .pid = 77, .comm = "python", .path = "/x/libcuda.so.1", .cpu_pct = 40, .quiet_windows = 3};
    assert_int_equal(ltn_health_silence(&h, S(2), &s, lines), 1);
    assert_int_equal(lines[0].level, LTN_LOG_WARN);
    assert_non_null(strstr(lines[0].text, "process 77 (python), 40 % of a CPU in /x/libcuda.so.1"));
    assert_int_equal(ltn_health_silence(&h, S(3), &s, lines), 0);
    assert_int_equal(ltn_health_silence(&h, S(63), &s, lines), 1);
    s.silent_now = 0;
    assert_int_equal(ltn_health_silence(&h, S(64), &s, lines), 1);
    assert_int_equal(lines[0].level, LTN_LOG_INFO);
    assert_int_equal(ltn_health_silence(&h, S(65), &s, lines), 0);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pushing_that_fails_is_told_once_then_seldom_and_its_end),
        TEST(the_reason_decides_the_advice),
        TEST(flapping_is_told_once_a_minute),
        TEST(what_is_lost_is_told),
        TEST(a_database_that_fails_is_told),
        TEST(doubts_about_arguments_are_told_once_for_each_rise),
        TEST(a_process_of_which_nothing_is_seen_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
