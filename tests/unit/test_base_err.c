/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "cmocka_all.h"

struct row {
    const char *name;
    int code;
    int grpc;
    int http;
    int retry;
    const char *text;
};

static const struct row table[] = {
#define ROW(name, value, grpc, http, retry, text) {#name, value, grpc, http, retry, text},
    LTN_ERR_TABLE(ROW)
#undef ROW
};

static void codes_and_texts_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(table); i++) {
        assert_true(table[i].code <= -10001);
        assert_true(table[i].text[0] != '\0');
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(table[i].code, table[k].code);
            assert_string_not_equal(table[i].text, table[k].text);
        }
    }
}

static void table_is_what_the_functions_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(table); i++) {
        assert_string_equal(ltn_err_str(table[i].code), table[i].text);
        assert_int_equal(ltn_err_grpc(table[i].code), table[i].grpc);
        assert_int_equal(ltn_err_http(table[i].code), table[i].http);
        assert_int_equal(ltn_err_retryable(table[i].code), table[i].retry);
        assert_in_range(table[i].grpc, 1, 16);
        assert_in_range(table[i].http, 400, 599);
    }
}

/* OTLP clients retry on these statuses alone; exactly what we call retryable must have one. */
static void retryable_means_so_on_the_wire(void **state)
{
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(table); i++) {
        int http = table[i].http;
        bool http_retry = http == 429 || http == 502 || http == 503 || http == 504;
        assert_int_equal(http_retry, table[i].retry);
        if (table[i].retry) {
            assert_true(http_retry);
            assert_true(table[i].grpc == 14 || table[i].grpc == 4 || table[i].grpc == 8);
        }
    }
}

static void system_errors_have_text(void **state)
{
    (void)state;
    assert_string_equal(ltn_err_str(0), "success");
    assert_int_equal(ltn_err_grpc(0), 0);
    assert_int_equal(ltn_err_http(0), 200);
    assert_false(ltn_err_retryable(0));
    for (int e = 1; e < 4200; e++) {
        const char *text = ltn_err_str(-e);
        assert_non_null(text);
        assert_true(text[0] != '\0');
        assert_in_range(ltn_err_grpc(-e), 1, 16);
        assert_in_range(ltn_err_http(-e), 400, 599);
    }
    assert_true(ltn_err_retryable(-EAGAIN));
    assert_false(ltn_err_retryable(-EINVAL));
    assert_int_equal(ltn_err_http(-ENOENT), 500);
}

static void any_integer_is_allowed(void **state)
{
    (void)state;
    const int odd[] = {1, INT_MAX, INT_MIN, -4096, -10000, -99999};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(odd); i++) {
        assert_string_equal(ltn_err_str(odd[i]), "unknown error");
        assert_int_equal(ltn_err_grpc(odd[i]), 13);
        assert_int_equal(ltn_err_http(odd[i]), 500);
    }
}

static void detail_is_cut_and_code_returned(void **state)
{
    (void)state;
    struct ltn_errinfo info;
    assert_int_equal(ltn_errinfo_set(NULL, -EINVAL, "x"), -EINVAL);
    assert_int_equal(ltn_errinfo_set(&info, LTN_ERR_CONFIG, "line %d", 7), LTN_ERR_CONFIG);
    assert_int_equal(info.code, LTN_ERR_CONFIG);
    assert_string_equal(info.msg, "line 7");
    char text[1000];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(ltn_errinfo_set(&info, -1, "%s", text), -1);
    assert_int_equal(strlen(info.msg), LTN_ERRINFO_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_texts_are_unique),
        cmocka_unit_test(table_is_what_the_functions_say),
        cmocka_unit_test(retryable_means_so_on_the_wire),
        cmocka_unit_test(system_errors_have_text),
        cmocka_unit_test(any_integer_is_allowed),
        cmocka_unit_test(detail_is_cut_and_code_returned),
    };
    return LTN_RUN_TESTS(tests);
}
