/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "otlp/response.h"

static void test_response(void **state)
{
    (void)state;
    struct ltn_buf b;
    uint64_t rejected = 1;
    struct ltn_otlp_str message = {"x", 1};
    ltn_buf_init(&b, 4096);
    assert_int_equal(ltn_otlp_response_write(&b, 0, NULL), 0);
    assert_int_equal(ltn_otlp_response_write(&b, 0, ""), 0);
    assert_int_equal(b.len, 0);
    assert_int_equal(ltn_otlp_response_read(b.data, b.len, &rejected, &message), 0);
    assert_int_equal(rejected, 0);
    assert_int_equal(message.n, 0);
    assert_int_equal(ltn_otlp_response_write(&b, 300, "no"), 0);
    assert_memory_equal(b.data, "\x0a\x07\x08\xac\x02\x12\x02no", 9);
    assert_int_equal(b.len, 9);
    assert_int_equal(ltn_otlp_response_read(b.data, b.len, &rejected, &message), 0);
    assert_int_equal(rejected, 300);
    assert_true(ltn_otlp_str_eq(message, "no"));
    /* Every cut of it is an error or the empty message, never a read beyond. */
    for (size_t n = 1; n < b.len; n++) {
        assert_int_equal(ltn_otlp_response_read(b.data, n, &rejected, &message), LTN_ERR_MALFORMED);
    }
    ltn_buf_done(&b);
}

static void test_message_cut(void **state)
{
    (void)state;
    char text[LTN_OTLP_MESSAGE_MAX_BYTES + 8];
    struct ltn_buf b;
    uint64_t rejected;
    struct ltn_otlp_str message;
    /* The limit falls inside a two-byte character. */
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    memcpy(text + LTN_OTLP_MESSAGE_MAX_BYTES - 1, "\xc3\xa9", 2);
    ltn_buf_init(&b, 4096);
    assert_int_equal(ltn_otlp_response_write(&b, 1, text), 0);
    assert_int_equal(ltn_otlp_response_read(b.data, b.len, &rejected, &message), 0);
    assert_int_equal(message.n, LTN_OTLP_MESSAGE_MAX_BYTES - 1);
    ltn_buf_done(&b);
}

static void test_status(void **state)
{
    (void)state;
    static const char want[] = "\x08\x0e\x12\x04"
                               "full"
                               "\x1a\x30\x0a\x28"
                               "type.googleapis.com/google.rpc.RetryInfo"
                               "\x12\x04\x0a\x02\x08\x02";
    struct ltn_buf b;
    struct ltn_otlp_status s;
    ltn_buf_init(&b, 4096);
    assert_int_equal(ltn_otlp_status_write(&b, 14, "full", 2 * LTN_NS_PER_S), 0);
    assert_int_equal(b.len, sizeof(want) - 1);
    assert_memory_equal(b.data, want, b.len);
    assert_int_equal(ltn_otlp_status_read(b.data, b.len, &s), 0);
    assert_int_equal(s.code, 14);
    assert_true(ltn_otlp_str_eq(s.message, "full"));
    assert_true(s.retry_ns == 2 * LTN_NS_PER_S);
    ltn_buf_reset(&b);
    assert_int_equal(ltn_otlp_status_write(&b, 3, NULL, 0), 0);
    assert_memory_equal(b.data, "\x08\x03", 2);
    assert_int_equal(b.len, 2);
    ltn_buf_reset(&b);
    assert_int_equal(ltn_otlp_status_write(&b, 8, "", 1500000001), 0);
    assert_int_equal(ltn_otlp_status_read(b.data, b.len, &s), 0);
    assert_true(s.retry_ns == 1500000001);
    assert_int_equal(ltn_otlp_status_read(NULL, 0, &s), 0);
    assert_int_equal(s.code, 0);
    ltn_buf_reset(&b);
    assert_int_equal(ltn_otlp_retry_info_write(&b, LTN_NS_PER_S), 0);
    assert_memory_equal(b.data, "\x0a\x02\x08\x01", 4);
    assert_int_equal(b.len, 4);
    ltn_buf_done(&b);
}

/* A delay that is negative counts as none, one beyond range as the longest. */
static void test_status_hostile(void **state)
{
    (void)state;
    static const char head[] = "\x1a\x39\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x0d"
                               "\x0a\x0b\x08";
    char bytes[80];
    size_t n = sizeof(head) - 1;
    struct ltn_otlp_status s;
    memcpy(bytes, head, n);
    memcpy(bytes + n, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
    assert_int_equal(ltn_otlp_status_read(bytes, n + 10, &s), 0);
    assert_true(s.retry_ns == 0);
    memcpy(bytes + n, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10", 10); /* then field 2 is cut */
    assert_int_equal(ltn_otlp_status_read(bytes, n + 10, &s), LTN_ERR_MALFORMED);
    memcpy(bytes + n, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 10);
    assert_int_equal(ltn_otlp_status_read(bytes, n + 10, &s), 0);
    assert_true(s.retry_ns == UINT64_MAX);
}

static void test_ceiling(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 8);
    assert_int_equal(ltn_otlp_response_write(&b, 300, "no"), LTN_ERR_TOO_LARGE);
    assert_int_equal(b.len, 0);
    assert_int_equal(ltn_otlp_response_write(&b, 300, NULL), 0);
    assert_int_equal(b.len, 5);
    assert_int_equal(ltn_otlp_status_write(&b, 14, "full", 1), LTN_ERR_TOO_LARGE);
    assert_int_equal(b.len, 5);
    ltn_buf_done(&b);
}

static void test_json(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 200);
    assert_int_equal(ltn_otlp_response_json(&b, LTN_OTLP_METRICS, 0, NULL), 0);
    assert_int_equal(ltn_otlp_response_json(&b, LTN_OTLP_LOGS, 0, ""), 0);
    assert_string_equal(ltn_buf_str(&b), "{}{}");
    ltn_buf_reset(&b);
    assert_int_equal(ltn_otlp_response_json(&b, LTN_OTLP_METRICS, 3, "a \"b\"\xff"), 0);
    assert_string_equal(ltn_buf_str(&b), "{\"partialSuccess\":{\"rejectedDataPoints\":\"3\","
                                         "\"errorMessage\":\"a \\\"b\\\"\xef\xbf\xbd\"}}");
    ltn_buf_reset(&b);
    assert_int_equal(ltn_otlp_response_json(&b, LTN_OTLP_LOGS, 0, "warning"), 0);
    assert_string_equal(ltn_buf_str(&b), "{\"partialSuccess\":{\"errorMessage\":\"warning\"}}");
    ltn_buf_reset(&b);
    assert_int_equal(ltn_otlp_response_json(&b, LTN_OTLP_TRACES, UINT64_MAX, NULL), 0);
    assert_string_equal(ltn_buf_str(&b),
                        "{\"partialSuccess\":{\"rejectedSpans\":\"9223372036854775807\"}}");
    ltn_buf_done(&b);
    ltn_buf_init(&b, 20);
    assert_int_equal(ltn_otlp_response_json(&b, LTN_OTLP_LOGS, 1, "x"), LTN_ERR_TOO_LARGE);
    assert_int_equal(b.len, 0);
    ltn_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),           cmocka_unit_test(test_response),
        cmocka_unit_test(test_message_cut),    cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_hostile), cmocka_unit_test(test_ceiling),
    };
    return cmocka_run_group_tests_name("otlp_response", tests, NULL, NULL);
}
