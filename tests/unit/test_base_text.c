/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <string.h>

#include "base/attr.h"
#include "cmocka_all.h"

static void u64_is_strict(void **state)
{
    (void)state;
    uint64_t v = 77;
    static const char *const bad[] = {"",    " 1",  "1 ", "-1",  "+1",
                                      "0x1", "1.0", "a",  "1\n", "18446744073709551616"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        assert_false(ltn_parse_u64(bad[i], &v));
        assert_int_equal(v, 77);
    }
    assert_true(ltn_parse_u64("0", &v));
    assert_int_equal(v, 0);
    assert_true(ltn_parse_u64("18446744073709551615", &v));
    assert_true(v == UINT64_MAX);
    assert_true(ltn_parse_u64("007", &v));
    assert_int_equal(v, 7);
}

static void i64_is_strict(void **state)
{
    (void)state;
    int64_t v = 77;
    static const char *const bad[] = {
        "", "-", "--1", "+1", " 1", "1 ", "- 1", "9223372036854775808", "-9223372036854775809"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        assert_false(ltn_parse_i64(bad[i], &v));
        assert_int_equal(v, 77);
    }
    assert_true(ltn_parse_i64("-9223372036854775808", &v));
    assert_true(v == INT64_MIN);
    assert_true(ltn_parse_i64("9223372036854775807", &v));
    assert_true(v == INT64_MAX);
    assert_true(ltn_parse_i64("-0", &v));
    assert_int_equal(v, 0);
}

static bool same(double a, double b)
{
    return !(a < b) && !(a > b);
}

static void f64_is_strict(void **state)
{
    (void)state;
    double v = 77;
    static const char *const bad[] = {"",    " 1",     "1 ",       "x",      "1e",   "1e999",
                                      "nan", "-1e999", "infinity", "-inf",   "0x10", "1,5",
                                      "-",   ".",      "NaN(1)",   "0X1p-2", "e5",   "1.5f"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        if (ltn_parse_f64(bad[i], &v)) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_true(same(v, 77));
    }
    assert_true(ltn_parse_f64("-1.5e3", &v) && same(v, -1500));
    assert_true(ltn_parse_f64("5e-324", &v) && v > 0); /* denormal: exact, not an overflow */
    assert_true(ltn_parse_f64("1e-999", &v) && same(v, 0));
    assert_true(ltn_parse_f64("0.08", &v) && same(v, 0.08));
}

static void durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {
        {"0", 0},
        {"90", 90 * LTN_NS_PER_S},
        {"90s", 90 * LTN_NS_PER_S},
        {"5m", 300 * LTN_NS_PER_S},
        {"1h30m", 5400 * LTN_NS_PER_S},
        {"2d", 172800 * LTN_NS_PER_S},
        {"1w", 604800 * LTN_NS_PER_S},
        {"3d12h", 302400 * LTN_NS_PER_S},
        {"250ms", 250 * LTN_NS_PER_MS},
        {"1.5s", 1500 * LTN_NS_PER_MS},
        {"7us", 7000},
        {"9ns", 9},
        {"15000w", 9072000000ULL * LTN_NS_PER_S},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(good); i++) {
        uint64_t ns = 1;
        if (!ltn_parse_duration_ns(good[i].text, &ns) || ns != good[i].ns) {
            fail_msg("'%s' gave %llu", good[i].text, (unsigned long long)ns);
        }
    }
    static const char *const bad[] = {"",       "s",
                                      "-5s",    "+5s",
                                      "5x",     "5 s",
                                      " 5s",    "5s ",
                                      "1h-5m",  "0x5m",
                                      "1e3s",   "inf",
                                      "nan",    "5sm",
                                      "1..5s",  ".5s",
                                      "5.s",    "300000w",
                                      "1e400",  "5S",
                                      "5µs",    "99999999999999999999999w",
                                      "15250w", "15000w15000w"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        uint64_t ns = 77;
        if (ltn_parse_duration_ns(bad[i], &ns)) {
            fail_msg("'%s' was taken as %llu", bad[i], (unsigned long long)ns);
        }
        assert_int_equal(ns, 77);
    }
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"4096b", 4096},
                {"500k", 512000},
                {"500K", 512000},
                {"500m", 524288000},
                {"10g", 10737418240},
                {"10G", 10737418240},
                {"10GB", 10737418240},
                {"10GiB", 10737418240},
                {"2t", 2199023255552},
                {"16777215t", 18446742974197923840ULL}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(good); i++) {
        uint64_t bytes = 1;
        if (!ltn_parse_size_bytes(good[i].text, &bytes) || bytes != good[i].bytes) {
            fail_msg("'%s' gave %llu", good[i].text, (unsigned long long)bytes);
        }
    }
    static const char *const bad[] = {
        "",    "k",  "-1k",  "+1k",  "1.5g", "1 k",       "1kk", "1ib",
        "1bk", "1p", "0x1k", "1kbb", "1ki",  "16777216t", " 1",  "18446744073709551616"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        uint64_t bytes = 77;
        if (ltn_parse_size_bytes(bad[i], &bytes)) {
            fail_msg("'%s' was taken as %llu", bad[i], (unsigned long long)bytes);
        }
        assert_int_equal(bytes, 77);
    }
}

static void clean_text(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        const char *out;
    } cases[] = {
        {"", ""},
        {"python3", "python3"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"a\x1b[2Jb\r\n", "a?[2Jb??"},
        {"del\x7f", "del?"},
        {"c1\xc2\x9b"
         "31m",
         "c1?31m"},
        {"nbsp\xc2\xa0", "nbsp\xc2\xa0"},
        {"\xff\xfe", "??"},
        {"cut\xe2\x82", "cut??"},
        {"a\xe2\x80\xae"
         "b\xe2\x80\xaa\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8e\xe2\x80\x8f",
         "a?b?????"},
        {"\xe2\x80\x93\xe2\x80\x8d\xe2\x81\xaa", "\xe2\x80\x93\xe2\x80\x8d\xe2\x81\xaa"},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        char out[64];
        ltn_text_clean(out, sizeof(out), cases[i].in, strlen(cases[i].in));
        assert_string_equal(out, cases[i].out);
    }
    char out[64];
    ltn_text_clean(out, sizeof(out), "ab\0cd", 5); /* a comm is padded with NULs */
    assert_string_equal(out, "ab");
}

static void clean_text_never_cuts_a_character(void **state)
{
    (void)state;
    static const char in[] = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x9a\xb2!";
    for (size_t size = 1; size < sizeof(in) + 3; size++) {
        char out[32];
        memset(out, 'z', sizeof(out));
        ltn_text_clean(out, size, in, sizeof(in) - 1);
        assert_true(strlen(out) < size);
        assert_true(ltn_utf8_valid(out, strlen(out)));
        assert_memory_equal(out, in, strlen(out));
        assert_int_equal(out[size], 'z');
    }
}

static void copies_say_when_they_cut(void **state)
{
    (void)state;
    char out[4];
    assert_true(ltn_copy_str(out, sizeof(out), ""));
    assert_string_equal(out, "");
    assert_true(ltn_copy_str(out, sizeof(out), "abc"));
    assert_string_equal(out, "abc");
    assert_false(ltn_copy_str(out, sizeof(out), "abcd"));
    assert_string_equal(out, "abc");
    assert_false(ltn_copy_str(out, 1, "a"));
    assert_string_equal(out, "");
}

static void edit_distances(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        unsigned d;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "abc", 0},
        {"abc", "abd", 1},
        {"abc", "ab", 1},
        {"abc", "xabc", 1},
        {"ab", "ba", 2},
        {"kitten", "sitting", 3},
        {"window", "windwo", 2},
        {"saturday", "sunday", 3},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        assert_int_equal(ltn_edit_distance(cases[i].a, cases[i].b), cases[i].d);
        assert_int_equal(ltn_edit_distance(cases[i].b, cases[i].a), cases[i].d);
    }
    char longer[200];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(ltn_edit_distance(longer, ""), 64);
    assert_int_equal(ltn_edit_distance(longer, longer), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u64_is_strict),
        cmocka_unit_test(i64_is_strict),
        cmocka_unit_test(f64_is_strict),
        cmocka_unit_test(durations),
        cmocka_unit_test(sizes),
        cmocka_unit_test(clean_text),
        cmocka_unit_test(clean_text_never_cuts_a_character),
        cmocka_unit_test(copies_say_when_they_cut),
        cmocka_unit_test(edit_distances),
    };
    return LTN_RUN_TESTS(tests);
}
