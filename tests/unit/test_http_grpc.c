/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "http/grpc.h"
#include "http/library.h"
#include "http/head.h"

static void test_frame_in_any_cut(void **state)
{
    (void)state;
    const uint8_t wire[] = {0, 0, 0, 0, 4, 'a', 'b', 'c', 'd', 9, 9};
    for (size_t cut = 1; cut <= sizeof(wire); cut++) {
        struct ltn_grpc_frame f;
        size_t pos = 0;
        int rc = 0;
        ltn_grpc_frame_init(&f, 4);
        while (rc == 0) {
            size_t used;
            size_t part = sizeof(wire) - pos < cut ? sizeof(wire) - pos : cut;
            rc = ltn_grpc_frame_feed(&f, wire + pos, part, &used);
            assert_true(rc >= 0);
            pos += used;
        }
        assert_int_equal(pos, 9);
        assert_false(ltn_grpc_frame_partial(&f));
        assert_int_equal(f.message.len, 4);
        assert_memory_equal(f.message.data, "abcd", 4);
        ltn_grpc_frame_done(&f);
    }
}

static void test_frame_limits(void **state)
{
    (void)state;
    const uint8_t large[] = {0, 0, 0, 0, 5, 'a'};
    const uint8_t flag[] = {2, 0, 0, 0, 0};
    const uint8_t empty[] = {1, 0, 0, 0, 0};
    struct ltn_grpc_frame f;
    size_t used;
    ltn_grpc_frame_init(&f, 4);
    assert_int_equal(ltn_grpc_frame_feed(&f, large, sizeof(large), &used), LTN_ERR_TOO_LARGE);
    assert_int_equal(f.message.len, 0);
    ltn_grpc_frame_reset(&f);
    assert_int_equal(ltn_grpc_frame_feed(&f, flag, sizeof(flag), &used), LTN_ERR_MALFORMED);
    ltn_grpc_frame_reset(&f);
    assert_int_equal(ltn_grpc_frame_feed(&f, empty, 4, &used), 0);
    assert_true(ltn_grpc_frame_partial(&f));
    assert_int_equal(ltn_grpc_frame_feed(&f, empty + 4, 1, &used), 1);
    assert_true(f.compressed);
    ltn_grpc_frame_done(&f);
}

/* Room is made ahead, but not on a promise alone. */
static void test_frame_room(void **state)
{
    (void)state;
    static uint8_t wire[5 + 20000] = {0, 0, 0x0f, 0, 0}; /* of 983,040 bytes */
    struct ltn_grpc_frame f;
    size_t used;
    ltn_grpc_frame_init(&f, 1 << 20);
    assert_int_equal(ltn_grpc_frame_feed(&f, wire, 6, &used), 0);
    assert_true(f.message.size <= 64);
    ltn_grpc_frame_done(&f);
    wire[2] = 1; /* of 65,536 */
    ltn_grpc_frame_init(&f, 1 << 20);
    assert_int_equal(ltn_grpc_frame_feed(&f, wire, sizeof(wire), &used), 0);
    assert_int_equal(f.message.size, 65537);
    ltn_grpc_frame_done(&f);
}

static void test_timeouts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        uint64_t ns;
    } cases[] = {
        {"1n", true, 1},           {"2u", true, 2000},
        {"100m", true, 100000000}, {"99999999S", true, 99999999000000000ULL},
        {"1M", true, 60000000000}, {"99999999H", true, INT64_MAX},
        {"0S", true, 0},           {"", false, 0},
        {"1", false, 0},           {"S", false, 0},
        {"123456789S", false, 0},  {"1s", false, 0},
        {"-1S", false, 0},         {"1SS", false, 0},
        {" 1S", false, 0},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        uint64_t ns = 0;
        assert_int_equal(ltn_grpc_timeout_parse(cases[i].text, &ns), cases[i].ok);
        assert_int_equal(ns, cases[i].ns);
    }
    const uint64_t spans[] = {1, 99999999, 100000000, 10 * LTN_NS_PER_S, UINT64_MAX};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(spans); i++) {
        char text[16];
        uint64_t ns;
        ltn_grpc_timeout_format(spans[i], text);
        assert_true(strlen(text) <= 9);
        assert_true(ltn_grpc_timeout_parse(text, &ns));
        assert_true(ns <= spans[i] && ns >= spans[i] / 2 - spans[i] / 1000);
    }
}

static void test_messages(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 100);
    assert_int_equal(ltn_grpc_message_encode(&b, "a%b\n\xc3\xa9~", 100), 0);
    assert_string_equal(ltn_buf_str(&b), "a%25b%0A%C3%A9~");
    ltn_buf_reset(&b);
    assert_int_equal(ltn_grpc_message_encode(&b, "\xc3\xa9\xc3\xa9", 8), 0);
    assert_true(b.len <= 8);
    ltn_buf_reset(&b);
    assert_int_equal(ltn_grpc_message_decode(&b, "a%25%0a%C3%A9%zz%1"), 0);
    assert_string_equal(ltn_buf_str(&b), "a%\n\xc3\xa9%zz%1");
    ltn_buf_done(&b);
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""},           {"f", "Zg"},
                                           {"fo", "Zm8"},      {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg"}, {"\xff\xfe", "//4"}};
    struct ltn_buf b;
    ltn_buf_init(&b, 100);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(pairs); i++) {
        ltn_buf_reset(&b);
        assert_int_equal(ltn_base64_encode(&b, (const uint8_t *)pairs[i][0], strlen(pairs[i][0])),
                         0);
        assert_string_equal(ltn_buf_str(&b), pairs[i][1]);
        ltn_buf_reset(&b);
        assert_int_equal(ltn_base64_decode(&b, pairs[i][1], strlen(pairs[i][1])), 0);
        assert_string_equal(ltn_buf_str(&b), pairs[i][0]);
    }
    ltn_buf_reset(&b);
    assert_int_equal(ltn_base64_decode(&b, "Zg==", 4), 0);
    assert_string_equal(ltn_buf_str(&b), "f");
    assert_int_equal(ltn_base64_decode(&b, "Z", 1), LTN_ERR_MALFORMED);
    assert_int_equal(ltn_base64_decode(&b, "Z*==", 4), LTN_ERR_MALFORMED);
    assert_int_equal(ltn_base64_decode(&b, "Z\0==", 4), LTN_ERR_MALFORMED);
    ltn_buf_done(&b);
}

static void test_status(void **state)
{
    (void)state;
    struct ltn_buf b;
    uint64_t ns = 0;
    ltn_buf_init(&b, 1000);
    assert_int_equal(ltn_rpc_status(&b, 14, "busy", 2500), 0);
    assert_memory_equal(b.data,
                        "\x08\x0e\x12\x04"
                        "busy\x1a",
                        9);
    assert_true(ltn_rpc_status_retry_parse((const uint8_t *)b.data, b.len, &ns));
    assert_int_equal(ns, 2500 * LTN_NS_PER_MS);
    for (size_t n = 0; n < b.len; n++) {
        assert_false(ltn_rpc_status_retry_parse((const uint8_t *)b.data, n, &ns));
    }
    ltn_buf_reset(&b);
    assert_int_equal(ltn_rpc_status_bad_request(&b, 3, "bad", "body"), 0);
    static const char bad[] = "\x08\x03\x12\x03"
                              "bad\x1a\x3a\x0a\x29type.googleapis.com/google.rpc."
                              "BadRequest\x12\x0d\x0a\x0b\x0a\x04"
                              "body\x12\x03"
                              "bad";
    assert_int_equal(b.len, sizeof(bad) - 1);
    assert_memory_equal(b.data, bad, sizeof(bad) - 1);
    assert_false(ltn_rpc_status_retry_parse((const uint8_t *)b.data, b.len, &ns));
    ltn_buf_reset(&b);
    assert_int_equal(ltn_rpc_status_bad_request(&b, 3, "", NULL), 0);
    assert_int_equal(b.len, 2);
    ltn_buf_reset(&b);
    assert_int_equal(ltn_rpc_status(&b, 3, "", 0), 0);
    assert_int_equal(b.len, 2);
    assert_false(ltn_rpc_status_retry_parse((const uint8_t *)b.data, b.len, &ns));
    ltn_buf_reset(&b);
    assert_int_equal(ltn_rpc_retry_info(&b, 1000), 0);
    assert_true(ltn_rpc_retry_info_parse((const uint8_t *)b.data, b.len, &ns));
    assert_int_equal(ns, LTN_NS_PER_S);
    /* Duration of minus one second. */
    const uint8_t minus[] = {0x0a, 11,   0x08, 0xff, 0xff, 0xff, 0xff,
                             0xff, 0xff, 0xff, 0xff, 0xff, 1};
    assert_false(ltn_rpc_retry_info_parse(minus, sizeof(minus), &ns));
    ltn_buf_done(&b);
}

static void test_lists_and_lengths(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(ltn_list_has("keep-alive, Close", "close"));
    assert_true(ltn_list_has("a;q=1 , b", "a"));
    assert_false(ltn_list_has("closed, xclose", "close"));
    assert_false(ltn_list_has("", "close"));
    assert_true(ltn_parse_length("0", 1, &v));
    assert_false(ltn_parse_length("+1", 2, &v));
    assert_false(ltn_parse_length("1 ", 2, &v));
    assert_false(ltn_parse_length("", 0, &v));
    assert_false(ltn_parse_length("99999999999999999999", 20, &v));
    struct ltn_head *h = ltn_head_new(100, 2);
    assert_int_equal(ltn_head_add(h, "X-Ab", 4, "v", 1), 0);
    assert_string_equal(ltn_head_get(h, "x-ab"), "v");
    assert_int_equal(ltn_head_add(h, "b", 1, "0123456789012345678901234567890123456789", 40),
                     LTN_ERR_TOO_LARGE);
    assert_true(h->too_large);
    ltn_head_free(h);
}

static void ends_badly(void)
{
    (void)raise(SIGKILL);
}

static void ends_well(void)
{
}

static void test_library(void **state)
{
    (void)state;
    assert_false(ltn_http_survives(ends_badly));
    assert_true(ltn_http_survives(ends_well));
    struct ltn_errinfo info = {0, ""};
    assert_int_equal(ltn_http_library_check(&info), 0);
    assert_string_equal(info.msg, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_in_any_cut), cmocka_unit_test(test_frame_limits),
        cmocka_unit_test(test_frame_room),       cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_messages),         cmocka_unit_test(test_base64),
        cmocka_unit_test(test_status),           cmocka_unit_test(test_lists_and_lengths),
        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
