/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer writes is read back by an independent parser. */
#include "base/json.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "cmocka_all.h"

struct doc {
    struct ltn_buf out;
    struct ltn_json j;
};

static void doc_init(struct doc *d)
{
    ltn_buf_init(&d->out, 1 << 20);
    ltn_json_init(&d->j, &d->out);
}

/* The document as a tree; the buffer is freed. */
static json_t *doc_parse(struct doc *d)
{
    json_error_t error;
    assert_int_equal(ltn_buf_error(&d->out), 0);
    json_t *tree = json_loadb(ltn_buf_str(&d->out), d->out.len,
                              JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (tree == NULL) {
        fail_msg("%s in %s", error.text, ltn_buf_str(&d->out));
    }
    ltn_buf_done(&d->out);
    return tree;
}

static void expect_text(struct doc *d, const char *text)
{
    assert_int_equal(ltn_buf_error(&d->out), 0);
    assert_string_equal(ltn_buf_str(&d->out), text);
    ltn_buf_done(&d->out);
}

static void commas_and_colons(void **state)
{
    (void)state;
    struct doc d;
    doc_init(&d);
    ltn_json_open_object(&d.j);
    ltn_json_kv_u64(&d.j, "a", UINT64_MAX);
    ltn_json_kv_i64(&d.j, "b", INT64_MIN);
    ltn_json_key(&d.j, "c");
    ltn_json_open_array(&d.j);
    ltn_json_open_array(&d.j);
    ltn_json_close_array(&d.j);
    ltn_json_open_object(&d.j);
    ltn_json_close_object(&d.j);
    ltn_json_null(&d.j);
    ltn_json_bool(&d.j, true);
    ltn_json_str(&d.j, NULL);
    ltn_json_close_array(&d.j);
    ltn_json_kv_bool(&d.j, "d", false);
    ltn_json_kv_str(&d.j, "e", "");
    ltn_json_kv_f64(&d.j, "f", 0.5);
    ltn_json_close_object(&d.j);
    expect_text(&d, "{\"a\":18446744073709551615,\"b\":-9223372036854775808,"
                    "\"c\":[[],{},null,true,null],\"d\":false,\"e\":\"\",\"f\":0.5}");
}

static void every_byte_survives(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 0x80; c++) {
        struct doc d;
        const char text[3] = {'<', (char)c, '>'};
        doc_init(&d);
        ltn_json_strn(&d.j, text, sizeof(text));
        for (size_t i = 0; i < d.out.len; i++) {
            assert_true((unsigned char)d.out.data[i] >= 0x20 && d.out.data[i] != 0x7f);
        }
        json_t *tree = doc_parse(&d);
        assert_int_equal(json_string_length(tree), 3);
        assert_memory_equal(json_string_value(tree), text, 3);
        json_decref(tree);
    }
}

static void keys_are_escaped_too(void **state)
{
    (void)state;
    struct doc d;
    doc_init(&d);
    ltn_json_open_object(&d.j);
    ltn_json_kv_u64(&d.j, "a\"\n\xff", 1);
    ltn_json_close_object(&d.j);
    json_t *tree = doc_parse(&d);
    assert_int_equal(json_integer_value(json_object_get(tree, "a\"\n\xef\xbf\xbd")), 1);
    json_decref(tree);
}

static void bad_utf8_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        const char *out;
    } cases[] = {
        {"gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\""},
        {"\xf0\x9f\x9a\xb2", "\"\xf0\x9f\x9a\xb2\""},
        {"a\xff", "\"a\xef\xbf\xbd\""},
        {"\xc3", "\"\xef\xbf\xbd\""},
        {"\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xc0\xaf!", "\"\xef\xbf\xbd\xef\xbf\xbd!\""},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct doc d;
        doc_init(&d);
        ltn_json_str(&d.j, cases[i].in);
        expect_text(&d, cases[i].out);
    }
}

static void numbers_read_back_the_same(void **state)
{
    (void)state;
    const double values[] = {
        0.0,     -0.0,   1.0,        0.1,  1.0 / 3, 1e21, DBL_MAX, -1e-7,
        DBL_MIN, 5e-324, 123456.789, 1e15, 1e16,    1e17, -2.5e-9, 0.30000000000000004};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(values); i++) {
        struct doc d;
        doc_init(&d);
        ltn_json_f64(&d.j, values[i]);
        json_t *tree = doc_parse(&d);
        double back = json_number_value(tree);
        assert_memory_equal(&back, json_is_integer(tree) ? &back : &values[i], sizeof(back));
        assert_true(!(back < values[i]) && !(back > values[i]));
        json_decref(tree);
    }
    struct doc d;
    doc_init(&d);
    ltn_json_f64(&d.j, 0.1);
    expect_text(&d, "0.1");
    doc_init(&d);
    ltn_json_open_array(&d.j);
    ltn_json_f64(&d.j, (double)NAN);
    ltn_json_f64(&d.j, (double)INFINITY);
    ltn_json_f64(&d.j, -(double)INFINITY);
    ltn_json_close_array(&d.j);
    expect_text(&d, "[null,null,null]");
}

static void deepest_nesting_is_right(void **state)
{
    (void)state;
    struct doc d;
    doc_init(&d);
    for (int i = 0; i < LTN_JSON_MAX_DEPTH; i++) {
        ltn_json_open_array(&d.j);
        ltn_json_i64(&d.j, i);
    }
    for (int i = 0; i < LTN_JSON_MAX_DEPTH; i++) {
        ltn_json_i64(&d.j, -i);
        ltn_json_close_array(&d.j);
    }
    json_t *tree = doc_parse(&d);
    json_t *at = tree;
    for (int i = 0; i < LTN_JSON_MAX_DEPTH; i++) {
        assert_int_equal(json_array_size(at), i + 1 < LTN_JSON_MAX_DEPTH ? 3 : 2);
        assert_int_equal(json_integer_value(json_array_get(at, 0)), i);
        at = json_array_get(at, 1);
    }
    json_decref(tree);
}

static void deeper_is_an_error(void **state)
{
    (void)state;
    struct doc d;
    doc_init(&d);
    for (int i = 0; i <= LTN_JSON_MAX_DEPTH; i++) {
        assert_int_equal(ltn_buf_error(&d.out), 0);
        ltn_json_open_object(&d.j);
        ltn_json_key(&d.j, "k");
    }
    assert_int_equal(ltn_buf_error(&d.out), LTN_ERR_DEPTH);
    for (int i = 0; i <= LTN_JSON_MAX_DEPTH; i++) {
        ltn_json_close_object(&d.j);
    }
    assert_int_equal(ltn_buf_error(&d.out), LTN_ERR_DEPTH);
    ltn_buf_done(&d.out);
}

static void ceiling_shows_in_the_buffer(void **state)
{
    (void)state;
    struct doc d;
    ltn_buf_init(&d.out, 10);
    ltn_json_init(&d.j, &d.out);
    ltn_json_open_object(&d.j);
    ltn_json_kv_str(&d.j, "key", "too long for it");
    ltn_json_close_object(&d.j);
    assert_int_equal(ltn_buf_error(&d.out), LTN_ERR_TOO_LARGE);
    ltn_buf_done(&d.out);
}

static void times_come_twice(void **state)
{
    (void)state;
    struct doc d;
    doc_init(&d);
    ltn_json_open_object(&d.j);
    ltn_json_kv_time(&d.j, "t", "t_ns", 1769860800123000000ULL);
    ltn_json_kv_time(&d.j, "u", "u_ns", 0);
    ltn_json_close_object(&d.j);
    expect_text(&d, "{\"t\":\"2026-01-31T12:00:00.123Z\",\"t_ns\":1769860800123000000,"
                    "\"u\":null,\"u_ns\":null}");
}

static void writes_after_what_is_there(void **state)
{
    (void)state;
    struct doc d;
    ltn_buf_init(&d.out, 100);
    assert_int_equal(ltn_buf_puts(&d.out, "data: "), 0);
    ltn_json_init(&d.j, &d.out);
    ltn_json_str(&d.j, "x");
    expect_text(&d, "data: \"x\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_and_colons),          cmocka_unit_test(every_byte_survives),
        cmocka_unit_test(keys_are_escaped_too),       cmocka_unit_test(bad_utf8_is_replaced),
        cmocka_unit_test(numbers_read_back_the_same), cmocka_unit_test(deepest_nesting_is_right),
        cmocka_unit_test(deeper_is_an_error),         cmocka_unit_test(ceiling_shows_in_the_buffer),
        cmocka_unit_test(times_come_twice),           cmocka_unit_test(writes_after_what_is_there),
    };
    return LTN_RUN_TESTS(tests);
}
