/* SPDX-License-Identifier: Apache-2.0 */
/* The node's side of a question: pages, their bounds, waiting, taking back. */
#include "cmocka_all.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "drop_tree.h"
#include "push/answer.h"
#include "record/record.h"

#define NUMBERS                                                                                    \
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < %d) SELECT x, x AS y " \
    "FROM c"
/* One page, then nothing for ever. */
#define ENDLESS                                                                                    \
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c WHERE x <= "    \
    "1001"

struct fixture {
    char folder[64];
    int wake;
    struct ltn_answerer *a;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char path[128];
    struct ltn_record *record = NULL;
    struct ltn_errinfo info = {0};
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/ltn-answer-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(path, sizeof(path), "%s/r.db", f->folder);
    const struct ltn_record_opts opts = {.path = path, .node = "n"};
    assert_int_equal(ltn_record_open(&opts, &record, &info), 0);
    ltn_record_close(record);
    f->wake = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(ltn_answerer_new(path, f->wake, &f->a), 0);
    assert_int_equal(ltn_answerer_start(f->a), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ltn_answerer_free(f->a);
    (void)close(f->wake);
    (void)ltn_drop_tree(f->folder);
    free(f);
    return 0;
}

/* The next answer, read; the caller frees *ret_owner, which m points into. */
static void next(struct fixture *f, struct ltn_answer **ret_owner, struct ltn_control_message *m)
{
    struct pollfd p = {.fd = f->wake, .events = POLLIN};
    uint64_t v;
    while ((*ret_owner = ltn_answerer_next(f->a)) == NULL) {
        assert_int_equal(poll(&p, 1, 20000), 1);
        (void)!read(f->wake, &v, sizeof(v));
    }
    assert_int_equal(ltn_control_read_agent((*ret_owner)->bytes, (*ret_owner)->n, m), 0);
    assert_int_equal((*ret_owner)->end, m->kind == LTN_CONTROL_QUERY_END);
}

static void ask(struct fixture *f, uint64_t id, const char *sql, uint64_t timeout_ms)
{
    const struct ltn_control_query q = {.id = id,
                                        .sql = ltn_control_str(sql),
                                        .max_rows = 50000,
                                        .timeout_ns = timeout_ms * 1000000};
    assert_int_equal(ltn_answerer_ask(f->a, &q), 0);
}

static void expect_end(struct fixture *f, uint64_t id, int code)
{
    struct ltn_answer *m;
    struct ltn_control_message got;
    next(f, &m, &got);
    assert_int_equal(got.kind, LTN_CONTROL_QUERY_END);
    assert_true(got.end.id == id);
    assert_int_equal(got.end.code, code);
    free(m);
}

static void test_pages_hold_all_rows_in_order(void **state)
{
    struct fixture *f = *state;
    char sql[256];
    struct ltn_answer *m;
    struct ltn_control_message got;
    int64_t want = 0;
    uint32_t page = 0;
    (void)snprintf(sql, sizeof(sql), NUMBERS, 10500);
    ask(f, 1, sql, 20000);
    for (;;) {
        next(f, &m, &got);
        if (got.kind == LTN_CONTROL_QUERY_END) {
            break;
        }
        struct ltn_control_str row;
        size_t pos = 0;
        assert_true(got.page.page == page++);
        assert_int_equal(got.page.columns, got.page.page == 0 ? 2 : 0);
        assert_true(got.page.rows <= LTN_CONTROL_PAGE_ROWS && got.page.min_cells == 2 &&
                    got.page.max_cells == 2);
        while (ltn_control_next_row(&got.page, &pos, &row)) {
            struct ltn_control_cell c;
            size_t at = 0;
            assert_true(ltn_control_next_cell(row, &at, &c));
            assert_true(c.integer == ++want);
        }
        free(m);
    }
    assert_true(want == 10500 && got.end.rows == 10500 && got.end.code == 0 && !got.end.truncated);
    assert_int_equal(page, 11);
    free(m);
}

static void test_no_rows_still_have_columns(void **state)
{
    struct fixture *f = *state;
    struct ltn_answer *m;
    struct ltn_control_message got;
    ask(f, 2, "SELECT node, source FROM events", 5000);
    next(f, &m, &got);
    assert_int_equal(got.kind, LTN_CONTROL_QUERY_PAGE);
    assert_true(got.page.columns == 2 && got.page.rows == 0);
    free(m);
    expect_end(f, 2, 0);
}

static void test_errors(void **state)
{
    struct fixture *f = *state;
    struct ltn_answer *m;
    struct ltn_control_message got;
    ask(f, 3, "SELECT nix", 5000);
    expect_end(f, 3, 3);
    ask(f, 4, "DELETE FROM calls", 5000);
    expect_end(f, 4, 7);
    ask(f, 5, ENDLESS, 50);
    next(f, &m, &got); /* its page */
    free(m);
    expect_end(f, 5, 4);
    ask(f, 6, "SELECT zeroblob(600000)", 5000);
    expect_end(f, 6, 8);
}

static void test_cancel_ends_a_running_statement(void **state)
{
    struct fixture *f = *state;
    struct ltn_answer *m;
    struct ltn_control_message got;
    ask(f, 7, ENDLESS, 60000);
    next(f, &m, &got); /* it runs */
    free(m);
    assert_true(ltn_answerer_cancel(f->a, 7));
    expect_end(f, 7, 1);
    assert_false(ltn_answerer_cancel(f->a, 70));
    ask(f, 8, "SELECT nix", 5000);
    expect_end(f, 8, 3);
}

static void test_few_may_wait(void **state)
{
    struct fixture *f = *state;
    struct ltn_answer *m;
    struct ltn_control_message got;
    const struct ltn_control_query q = {.id = 20, .sql = ltn_control_str("SELECT 1")};
    ask(f, 9, ENDLESS, 60000);
    next(f, &m, &got); /* it runs */
    free(m);
    for (uint64_t id = 10; id < 14; id++) {
        ask(f, id, "SELECT nix", 5000);
    }
    assert_int_equal(ltn_answerer_ask(f->a, &q), LTN_ERR_BUSY);
    assert_true(ltn_answerer_cancel(f->a, 11)); /* one that waits: it never runs */
    assert_true(ltn_answerer_cancel(f->a, 9));
    expect_end(f, 9, 1);
    expect_end(f, 10, 3);
    expect_end(f, 12, 3);
    expect_end(f, 13, 3);
}

/* Nobody fetches: the statement waits, and a lost stream sets it free. */
static void test_lost_stream(void **state)
{
    struct fixture *f = *state;
    char sql[256];
    (void)snprintf(sql, sizeof(sql), NUMBERS, 50000);
    ask(f, 15, sql, 60000);
    struct pollfd p = {.fd = f->wake, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(ltn_answerer_cancel_all(f->a), 1);
    ask(f, 16, "SELECT nix", 5000);
    expect_end(f, 16, 3); /* and nothing of the other one before it */
    assert_true(ltn_answerer_dropped(f->a) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages_hold_all_rows_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_rows_still_have_columns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel_ends_a_running_statement, setup, teardown),
        cmocka_unit_test_setup_teardown(test_few_may_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_stream, setup, teardown),
    };
    return LTN_RUN_TESTS(tests);
}
