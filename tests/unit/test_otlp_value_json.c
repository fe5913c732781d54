/* SPDX-License-Identifier: Apache-2.0 */
/* Values as JSON: every kind, nested, cut, hostile. */
#include <math.h>
#include <string.h>

#include "cmocka_all.h"

#include "base/err.h"
#include "otlp/value_json.h"

static struct ltn_buf out;
static uint32_t cut;

static int write_value(const struct ltn_otlp_value *v, size_t max)
{
    struct ltn_json j;
    ltn_buf_done(&out);
    ltn_buf_init(&out, 1 << 16);
    ltn_json_init(&j, &out);
    cut = 0;
    return ltn_otlp_value_json(&j, v, max, &cut);
}

static void is(struct ltn_otlp_value v, const char *want)
{
    assert_int_equal(write_value(&v, 100), 0);
    assert_string_equal(ltn_buf_str(&out), want);
}

static struct ltn_otlp_value bytes(enum ltn_otlp_value_type type, const char *p, size_t n)
{
    return (struct ltn_otlp_value){.type = type, .str = {p, n}};
}

static void plain_values(void **state)
{
    (void)state;
    is((struct ltn_otlp_value){.type = LTN_OTLP_NONE}, "null");
    is((struct ltn_otlp_value){.type = LTN_OTLP_BOOL, .b = true}, "true");
    is((struct ltn_otlp_value){.type = LTN_OTLP_INT, .i = INT64_MIN}, "-9223372036854775808");
    is((struct ltn_otlp_value){.type = LTN_OTLP_DOUBLE, .d = 0.5}, "0.5");
    is((struct ltn_otlp_value){.type = LTN_OTLP_DOUBLE, .d = (double)NAN}, "\"NaN\"");
    is((struct ltn_otlp_value){.type = LTN_OTLP_DOUBLE, .d = (double)INFINITY}, "\"Infinity\"");
    is((struct ltn_otlp_value){.type = LTN_OTLP_DOUBLE, .d = -(double)INFINITY}, "\"-Infinity\"");
    is(bytes(LTN_OTLP_STRING, NULL, 0), "\"\"");
    is(bytes(LTN_OTLP_STRING, "a\0\"\n\xff", 5), "\"a\\u0000\\\"\\n\xef\xbf\xbd\"");
    is(bytes(LTN_OTLP_BYTES, NULL, 0), "\"\"");
    is(bytes(LTN_OTLP_BYTES, "f", 1), "\"Zg==\"");
    is(bytes(LTN_OTLP_BYTES, "fo", 2), "\"Zm8=\"");
    is(bytes(LTN_OTLP_BYTES, "\xfb\xff\xfe", 3), "\"+//+\"");
}

/* Key after value, a value that comes in two kinds, members that are no KeyValue. */
static void nested_values(void **state)
{
    static const char array[] = "\x0a\x02\x18\x05"                          /* 5 */
                                "\x0a\x00"                                  /* no value */
                                "\x12\x01x"                                 /* unknown field */
                                "\x0a\x05\x18\x01\x0a\x01z"                 /* 1, then "z" */
                                "\x0a\x08\x32\x06\x0a\x04\x0a\x00\x12\x00"; /* {"": null} */
    static const char map[] = "\x0a\x09\x12\x04\x0a\x02hi\x0a\x01k"         /* value, then key */
                              "\x0a\x03\x0a\x01\x6e";                       /* key alone */
    (void)state;
    is(bytes(LTN_OTLP_ARRAY, array, sizeof(array) - 1), "[5,null,\"z\",{\"\":null}]");
    is(bytes(LTN_OTLP_KVLIST, map, sizeof(map) - 1), "{\"k\":\"hi\",\"n\":null}");
    is(bytes(LTN_OTLP_ARRAY, NULL, 0), "[]");
    is(bytes(LTN_OTLP_KVLIST, NULL, 0), "{}");
}

static void texts_are_cut_between_characters(void **state)
{
    struct ltn_otlp_value v = bytes(LTN_OTLP_STRING, "ab\xc3\xa9\xf0\x9f\x98\x80z", 9);
    static const char *const want[] = {"\"\"",           "\"a\"",          "\"ab\"",
                                       "\"ab\"",         "\"ab\xc3\xa9\"", "\"ab\xc3\xa9\"",
                                       "\"ab\xc3\xa9\"", "\"ab\xc3\xa9\""};
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(want); i++) {
        assert_int_equal(write_value(&v, i), 0);
        assert_string_equal(ltn_buf_str(&out), want[i]);
        assert_int_equal(cut, 1);
    }
    assert_int_equal(write_value(&v, 9), 0);
    assert_int_equal(cut, 0);
    /* Continuation bytes without a beginning: cut all the same. */
    assert_int_equal(ltn_otlp_text_fit("\x80\x80\x80\x80\x80\x80", 6, 5), 5);
}

static void broken_and_deep_values_are_errors(void **state)
{
    char deep[400];
    size_t n = 0;
    (void)state;
    struct ltn_otlp_value v = bytes(LTN_OTLP_ARRAY, "\x0a\x05\x18", 3);
    assert_int_equal(write_value(&v, 10), LTN_ERR_MALFORMED);
    v = bytes(LTN_OTLP_KVLIST, "\x0a\x02\x0a\x05", 4);
    assert_int_equal(write_value(&v, 10), LTN_ERR_MALFORMED);
    /* Arrays in arrays, from the inside out: each level is two lengths. */
    for (size_t level = 0; level < 60; level++) {
        memmove(deep + 4, deep, n);
        deep[0] = 0x0a;
        deep[1] = (char)(n + 2);
        deep[2] = 0x2a;
        deep[3] = (char)n;
        n += 4;
        if (n > 120)
            break;
    }
    v = bytes(LTN_OTLP_ARRAY, deep, n);
    int rc = write_value(&v, 10);
    assert_true(rc == 0 || rc == LTN_ERR_DEPTH);
    ltn_buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values),
        cmocka_unit_test(nested_values),
        cmocka_unit_test(texts_are_cut_between_characters),
        cmocka_unit_test(broken_and_deep_values_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
