/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/rows.h"

static struct ltn_sql_value text(const char *s)
{
    return (struct ltn_sql_value){.type = LTN_SQL_TEXT, .p = s, .n = strlen(s)};
}

static void fill(struct ltn_rows *r)
{
    const char *const names[] = {"name", "n", "evidence"};
    ltn_rows_init(r, 1 << 20);
    assert_int_equal(ltn_rows_columns(r, names, 3), 0);
    struct ltn_sql_value row[] = {
        text("a, \"b\"\n"), {.type = LTN_SQL_I64, .i = -3}, text("{\"x\":1}")};
    assert_int_equal(ltn_rows_add(r, row), 0);
    row[0] = (struct ltn_sql_value){.type = LTN_SQL_BLOB, .p = "\x01\xfe", .n = 2};
    row[1] = (struct ltn_sql_value){.type = LTN_SQL_F64, .f = 0.5};
    row[2] = text("{broken");
    assert_int_equal(ltn_rows_add(r, row), 0);
    row[0] = (struct ltn_sql_value){.type = LTN_SQL_NULL};
    row[1] = (struct ltn_sql_value){.type = LTN_SQL_I64, .i = INT64_MAX};
    row[2] = text("\x1b[31m");
    assert_int_equal(ltn_rows_add(r, row), 0);
}

static void three_forms(void **state)
{
    (void)state;
    struct ltn_rows r;
    struct ltn_buf b;
    struct ltn_json j;
    fill(&r);
    ltn_buf_init(&b, 1 << 20);
    ltn_rows_csv(&r, &b);
    assert_string_equal(ltn_buf_str(&b),
                        "name,n,evidence\r\n\"a, \"\"b\"\"\n\",-3,\"{\"\"x\"\":1}\"\r\n"
                        "01fe,0.5,{broken\r\n,9223372036854775807,\x1b[31m\r\n");
    ltn_buf_reset(&b);
    ltn_json_init(&j, &b);
    ltn_rows_objects(&r, &j);
    assert_string_equal(ltn_buf_str(&b),
                        "[{\"name\":\"a, \\\"b\\\"\\n\",\"n\":-3,\"evidence\":{\"x\":1}},"
                        "{\"name\":\"01fe\",\"n\":0.5,\"evidence\":\"{broken\"},"
                        "{\"name\":null,\"n\":9223372036854775807,\"evidence\":\"\\u001b[31m\"}]");
    ltn_buf_reset(&b);
    ltn_rows_table(&r, &b);
    /* No control character of the record reaches the terminal. */
    assert_null(strchr(ltn_buf_str(&b), 0x1b));
    assert_non_null(strstr(ltn_buf_str(&b), "a, \"b\"?"));
    ltn_buf_done(&b);
    ltn_rows_done(&r);
}

static void the_ceiling_holds(void **state)
{
    (void)state;
    struct ltn_rows r;
    const char *const names[] = {"x"};
    static char big[100000];
    memset(big, 'x', sizeof(big) - 1);
    ltn_rows_init(&r, 256 * 1024);
    assert_int_equal(ltn_rows_columns(&r, names, 1), 0);
    const struct ltn_sql_value v = text(big);
    int rc = 0;
    for (int i = 0; i < 10 && rc == 0; i++) {
        rc = ltn_rows_add(&r, &v);
    }
    assert_int_equal(rc, LTN_ERR_TOO_LARGE);
    assert_true(r.row_count < 4);
    ltn_rows_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_forms),
        cmocka_unit_test(the_ceiling_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
