/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the control stream: ours against protobuf-c both ways, and what is refused. */
#include "cmocka_all.h"

#include <string.h>

#include "lanterne/v1/control.pb-c.h"

#include "base/err.h"
#include "control/message.h"
#include "otlp/pb_write.h"

typedef Lanterne__V1__AgentMessage agent_message;
typedef Lanterne__V1__CollectorMessage collector_message;

static agent_message *unpack_agent(const struct ltn_buf *b)
{
    agent_message *m =
        lanterne__v1__agent_message__unpack(NULL, b->len, (const uint8_t *)ltn_buf_str(b));
    assert_non_null(m);
    return m;
}

static collector_message *unpack_collector(const struct ltn_buf *b)
{
    collector_message *m =
        lanterne__v1__collector_message__unpack(NULL, b->len, (const uint8_t *)ltn_buf_str(b));
    assert_non_null(m);
    return m;
}

static void assert_str(struct ltn_control_str s, const char *want)
{
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(s.p, want, s.n);
}

/* What we write is what protobuf-c reads, and packs to the same meaning for our reader. */
static void read_back_agent(const agent_message *m, struct ltn_buf *b,
                            struct ltn_control_message *ret)
{
    ltn_buf_reset(b);
    size_t n = lanterne__v1__agent_message__get_packed_size(m);
    uint8_t *p = ltn_buf_reserve(b, n);
    assert_non_null(p);
    assert_int_equal(lanterne__v1__agent_message__pack(m, p), n);
    ltn_buf_commit(b, n);
    assert_int_equal(ltn_control_read_agent(ltn_buf_str(b), b->len, ret), 0);
}

static void read_back_collector(const collector_message *m, struct ltn_buf *b,
                                struct ltn_control_message *ret)
{
    ltn_buf_reset(b);
    size_t n = lanterne__v1__collector_message__get_packed_size(m);
    uint8_t *p = ltn_buf_reserve(b, n);
    assert_non_null(p);
    assert_int_equal(lanterne__v1__collector_message__pack(m, p), n);
    ltn_buf_commit(b, n);
    assert_int_equal(ltn_control_read_collector(ltn_buf_str(b), b->len, ret), 0);
}

static void test_hello_ping_end_ack(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct ltn_control_message got;
    ltn_buf_init(&b, 1 << 20);
    const struct ltn_control_hello hello = {.node = ltn_control_str("n1"),
                                            .cluster = ltn_control_str("c"),
                                            .version = ltn_control_str("1.2"),
                                            .boot_id = ltn_control_str("b-1"),
                                            .instance = ltn_control_str("i-1"),
                                            .agent_start_unix_ns = UINT64_MAX};
    ltn_control_put_hello(&b, &hello);
    agent_message *m = unpack_agent(&b);
    assert_int_equal(m->body_case, LANTERNE__V1__AGENT_MESSAGE__BODY_HELLO);
    assert_string_equal(m->hello->node, "n1");
    assert_string_equal(m->hello->instance, "i-1");
    assert_true(m->hello->agent_start_unix_nano == UINT64_MAX);
    read_back_agent(m, &b, &got);
    lanterne__v1__agent_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_HELLO);
    assert_str(got.hello.node, "n1");
    assert_str(got.hello.cluster, "c");
    assert_str(got.hello.version, "1.2");
    assert_str(got.hello.boot_id, "b-1");
    assert_str(got.hello.instance, "i-1");
    assert_true(got.hello.agent_start_unix_ns == UINT64_MAX);

    const struct ltn_control_ping ping = {7, 1700000000000000000ULL, -123456789, 42};
    ltn_buf_reset(&b);
    ltn_control_put_ping(&b, &ping);
    m = unpack_agent(&b);
    assert_true(m->clock_ping->last_offset_ns == -123456789);
    read_back_agent(m, &b, &got);
    lanterne__v1__agent_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_CLOCK_PING);
    assert_memory_equal(&got.ping, &ping, sizeof(ping));

    const struct ltn_control_end end = {.id = 9,
                                        .code = -3,
                                        .message = ltn_control_str("why"),
                                        .truncated = true,
                                        .rows = 1,
                                        .elapsed_ns = 5};
    ltn_buf_reset(&b);
    ltn_control_put_end(&b, &end);
    m = unpack_agent(&b);
    assert_int_equal(m->query_end->code, -3);
    read_back_agent(m, &b, &got);
    lanterne__v1__agent_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_QUERY_END);
    assert_true(got.end.id == 9 && got.end.code == -3 && got.end.truncated && got.end.rows == 1);
    assert_str(got.end.message, "why");

    ltn_buf_reset(&b);
    ltn_control_put_ack(&b, ltn_control_str("v1"));
    m = unpack_agent(&b);
    read_back_agent(m, &b, &got);
    lanterne__v1__agent_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_VERDICT_ACK);
    assert_str(got.ack_id, "v1");
    ltn_buf_done(&b);
}

static void test_collector_messages(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct ltn_control_message got;
    ltn_buf_init(&b, 1 << 20);
    const struct ltn_control_query query = {3, ltn_control_str("SELECT 1"), 100, 1 << 20, 5};
    ltn_control_put_query(&b, &query);
    collector_message *m = unpack_collector(&b);
    assert_string_equal(m->query->sql, "SELECT 1");
    read_back_collector(m, &b, &got);
    lanterne__v1__collector_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_QUERY);
    assert_str(got.query.sql, "SELECT 1");
    assert_true(got.query.id == 3 && got.query.max_rows == 100 && got.query.max_bytes == 1 << 20 &&
                got.query.timeout_ns == 5);

    const struct ltn_control_verdict verdict = {.id = ltn_control_str("v"),
                                                .job = ltn_control_str("j"),
                                                .cause = ltn_control_str("cpu"),
                                                .rank = 12,
                                                .state = LTN_CONTROL_STATE_OPEN,
                                                .since_unix_ns = 77,
                                                .effect = 0.25,
                                                .explained_share = -1};
    ltn_buf_reset(&b);
    ltn_control_put_verdict(&b, &verdict);
    m = unpack_collector(&b);
    assert_int_equal(m->verdict->state, LANTERNE__V1__VERDICT__STATE__STATE_OPEN);
    read_back_collector(m, &b, &got);
    lanterne__v1__collector_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_VERDICT);
    assert_str(got.verdict.cause, "cpu");
    assert_true(got.verdict.rank == 12 && got.verdict.since_unix_ns == 77);
    assert_true(got.verdict.effect > 0.2 && got.verdict.explained_share < 0);

    const struct ltn_control_pong pong = {1, 2, 3, 4};
    ltn_buf_reset(&b);
    ltn_control_put_pong(&b, &pong);
    m = unpack_collector(&b);
    read_back_collector(m, &b, &got);
    lanterne__v1__collector_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_CLOCK_PONG);
    assert_memory_equal(&got.pong, &pong, sizeof(pong));

    const struct ltn_control_welcome welcome = {ltn_control_str("c"), ltn_control_str("v"), 9};
    ltn_buf_reset(&b);
    ltn_control_put_welcome(&b, &welcome);
    m = unpack_collector(&b);
    read_back_collector(m, &b, &got);
    lanterne__v1__collector_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_WELCOME);
    assert_true(got.welcome.clock_interval_ns == 9);

    ltn_buf_reset(&b);
    ltn_control_put_cancel(&b, 5);
    assert_int_equal(ltn_control_read_collector(ltn_buf_str(&b), b.len, &got), 0);
    assert_true(got.kind == LTN_CONTROL_QUERY_CANCEL && got.cancel_id == 5);
    ltn_buf_reset(&b);
    ltn_control_put_drain(&b, 6);
    assert_int_equal(ltn_control_read_collector(ltn_buf_str(&b), b.len, &got), 0);
    assert_true(got.kind == LTN_CONTROL_DRAIN && got.drain_within_ns == 6);
    ltn_buf_done(&b);
}

static struct ltn_control_cell text_cell(const char *s)
{
    return (struct ltn_control_cell){.type = LTN_CONTROL_TEXT, .bytes = ltn_control_str(s)};
}

static void write_page(struct ltn_buf *b)
{
    struct ltn_control_page_writer w;
    const struct ltn_control_cell cells[] = {
        {.type = LTN_CONTROL_INTEGER, .integer = INT64_MIN},
        {.type = LTN_CONTROL_REAL, .real = 0.5},
        text_cell("\xc3\x9c"),
        text_cell("\xff"), /* not UTF-8: a blob */
        {.type = LTN_CONTROL_NULL},
        {.type = LTN_CONTROL_TEXT, .bytes = {"", 0}},
    };
    ltn_control_open_page(&w, b, 4, 2);
    ltn_control_put_column(&w, "one");
    ltn_control_put_column(&w, "");
    ltn_control_open_row(&w);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cells); i++) {
        ltn_control_put_cell(b, &cells[i]);
    }
    ltn_control_close_row(&w);
    ltn_control_open_row(&w);
    ltn_control_close_row(&w);
    ltn_control_close_page(&w);
    assert_int_equal(ltn_buf_error(b), 0);
}

static void check_cells(struct ltn_control_str row)
{
    struct ltn_control_cell c;
    size_t pos = 0;
    assert_true(ltn_control_next_cell(row, &pos, &c));
    assert_true(c.type == LTN_CONTROL_INTEGER && c.integer == INT64_MIN);
    assert_true(ltn_control_next_cell(row, &pos, &c));
    assert_true(c.type == LTN_CONTROL_REAL && c.real > 0.4 && c.real < 0.6);
    assert_true(ltn_control_next_cell(row, &pos, &c));
    assert_int_equal(c.type, LTN_CONTROL_TEXT);
    assert_str(c.bytes, "\xc3\x9c");
    assert_true(ltn_control_next_cell(row, &pos, &c));
    assert_int_equal(c.type, LTN_CONTROL_BLOB);
    assert_str(c.bytes, "\xff");
    assert_true(ltn_control_next_cell(row, &pos, &c));
    assert_int_equal(c.type, LTN_CONTROL_NULL);
    assert_true(ltn_control_next_cell(row, &pos, &c));
    assert_true(c.type == LTN_CONTROL_TEXT && c.bytes.n == 0);
    assert_false(ltn_control_next_cell(row, &pos, &c));
}

static void test_page(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct ltn_control_message got;
    struct ltn_control_str s;
    size_t pos = 0;
    ltn_buf_init(&b, 1 << 20);
    write_page(&b);
    agent_message *m = unpack_agent(&b);
    assert_int_equal(m->query_page->n_rows, 2);
    assert_int_equal(m->query_page->rows[0]->n_cells, 6);
    assert_true(m->query_page->rows[0]->cells[0]->integer == INT64_MIN);
    assert_int_equal(m->query_page->rows[0]->cells[3]->value_case, LANTERNE__V1__CELL__VALUE_BLOB);
    assert_int_equal(m->query_page->rows[0]->cells[4]->value_case,
                     LANTERNE__V1__CELL__VALUE__NOT_SET);
    read_back_agent(m, &b, &got);
    lanterne__v1__agent_message__free_unpacked(m, NULL);
    assert_int_equal(got.kind, LTN_CONTROL_QUERY_PAGE);
    assert_true(got.page.id == 4 && got.page.page == 2 && got.page.columns == 2 &&
                got.page.rows == 2);
    assert_true(got.page.min_cells == 0 && got.page.max_cells == 6);
    assert_true(ltn_control_next_column(&got.page, &pos, &s));
    assert_str(s, "one");
    assert_true(ltn_control_next_column(&got.page, &pos, &s));
    assert_str(s, "");
    assert_false(ltn_control_next_column(&got.page, &pos, &s));
    pos = 0;
    assert_true(ltn_control_next_row(&got.page, &pos, &s));
    check_cells(s);
    assert_true(ltn_control_next_row(&got.page, &pos, &s));
    assert_int_equal(s.n, 0);
    assert_false(ltn_control_next_row(&got.page, &pos, &s));
    ltn_buf_done(&b);
}

static int read_page_of(size_t columns, size_t rows, size_t cells)
{
    struct ltn_buf b;
    struct ltn_control_page_writer w;
    struct ltn_control_message got;
    const struct ltn_control_cell null = {.type = LTN_CONTROL_NULL};
    ltn_buf_init(&b, 4 << 20);
    ltn_control_open_page(&w, &b, 1, 0);
    for (size_t i = 0; i < columns; i++) {
        ltn_control_put_column(&w, "c");
    }
    for (size_t i = 0; i < rows; i++) {
        ltn_control_open_row(&w);
        for (size_t k = 0; k < cells; k++) {
            ltn_control_put_cell(&b, &null);
        }
        ltn_control_close_row(&w);
    }
    ltn_control_close_page(&w);
    int rc = ltn_control_read_agent(ltn_buf_str(&b), b.len, &got);
    ltn_buf_done(&b);
    return rc;
}

static void test_counts_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(read_page_of(LTN_CONTROL_MAX_COLUMNS, LTN_CONTROL_PAGE_ROWS, 3), 0);
    assert_int_equal(read_page_of(LTN_CONTROL_MAX_COLUMNS + 1, 1, 1), LTN_ERR_COUNT);
    assert_int_equal(read_page_of(1, LTN_CONTROL_PAGE_ROWS + 1, 1), LTN_ERR_COUNT);
    assert_int_equal(read_page_of(1, 1, LTN_CONTROL_MAX_COLUMNS + 1), LTN_ERR_COUNT);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int rc;
    } cases[] = {
        {"", 0, 0},                                         /* nothing known */
        {"\x9a\x06\x01x", 4, 0},                            /* field 99: a newer peer */
        {"\x0a\x02\x0a", 3, LTN_ERR_MALFORMED},             /* hello beyond the end */
        {"\x08\x01", 2, LTN_ERR_MALFORMED},                 /* hello as a number */
        {"\x0a\x02\x08\x01", 4, LTN_ERR_MALFORMED},         /* the node's name as a number */
        {"\x0a\x00\x0a\x00", 4, LTN_ERR_MALFORMED},         /* two bodies */
        {"\x12\x01\xff", 3, LTN_ERR_MALFORMED},             /* half a varint */
        {"\x1a\x02\x20\x01", 4, LTN_ERR_MALFORMED},         /* a row as a number */
        {"\x1a\x04\x22\x02\x08\x01", 6, LTN_ERR_MALFORMED}, /* a cell as a number */
        {"\x1a\x06\x22\x04\x0a\x02\x10\x01", 8, LTN_ERR_MALFORMED}, /* a real as a number */
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct ltn_control_message got;
        int rc = ltn_control_read_agent(cases[i].bytes, cases[i].n, &got);
        if (rc != cases[i].rc) {
            fail_msg("case %zu: %d, not %d", i, rc, cases[i].rc);
        }
    }
    struct ltn_control_message got;
    static char large[LTN_CONTROL_MESSAGE_BYTES + 1];
    assert_int_equal(ltn_control_read_agent(large, sizeof(large), &got), LTN_ERR_TOO_LARGE);
    assert_int_equal(ltn_control_read_collector("\x0a\x02\x08\x01", 4, &got), LTN_ERR_MALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_ping_end_ack),
        cmocka_unit_test(test_collector_messages),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_counts_are_bounded),
        cmocka_unit_test(test_refused),
    };
    return LTN_RUN_TESTS(tests);
}
