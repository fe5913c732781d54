/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the control stream: what is accepted can be walked to its end, never leaves its
 * bytes, and a page that is written again reads the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void inside(struct ltn_control_str s, const uint8_t *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)s.p;
    require(s.n == 0 || (p >= data && s.n <= (size_t)(data + size - p)));
}

static void copy_row(struct ltn_control_page_writer *w, struct ltn_buf *b,
                     struct ltn_control_str row, const uint8_t *data, size_t size)
{
    struct ltn_control_cell c;
    size_t pos = 0, n = 0;
    ltn_control_open_row(w);
    while (ltn_control_next_cell(row, &pos, &c)) {
        inside(c.bytes, data, size);
        ltn_control_put_cell(b, &c);
        n++;
    }
    require(n <= LTN_CONTROL_MAX_COLUMNS);
    ltn_control_close_row(w);
}

static void copy_page(const struct ltn_control_page *page, const uint8_t *data, size_t size)
{
    struct ltn_control_page_writer w;
    struct ltn_control_message again;
    struct ltn_control_str s;
    struct ltn_buf b;
    size_t pos = 0, columns = 0, rows = 0;
    ltn_buf_init(&b, 16 << 20);
    ltn_control_open_page(&w, &b, page->id, page->page);
    while (ltn_control_next_column(page, &pos, &s)) {
        inside(s, data, size);
        ltn_control_put_column(&w, "c");
        columns++;
    }
    pos = 0;
    while (ltn_control_next_row(page, &pos, &s)) {
        inside(s, data, size);
        copy_row(&w, &b, s, data, size);
        rows++;
    }
    ltn_control_close_page(&w);
    require(columns == page->columns && rows == page->rows);
    require(ltn_buf_error(&b) == 0);
    if (b.len <= LTN_CONTROL_MESSAGE_BYTES) {
        require(ltn_control_read_agent(ltn_buf_str(&b), b.len, &again) == 0);
        require(again.kind == LTN_CONTROL_QUERY_PAGE && again.page.id == page->id &&
                again.page.rows == page->rows && again.page.max_cells == page->max_cells &&
                again.page.min_cells == page->min_cells);
    }
    ltn_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_control_message m;
    if (ltn_control_read_agent(data, size, &m) == 0) {
        if (m.kind == LTN_CONTROL_QUERY_PAGE) {
            copy_page(&m.page, data, size);
        } else if (m.kind == LTN_CONTROL_HELLO) {
            inside(m.hello.node, data, size);
            inside(m.hello.instance, data, size);
        } else if (m.kind == LTN_CONTROL_QUERY_END) {
            inside(m.end.message, data, size);
        }
    }
    if (ltn_control_read_collector(data, size, &m) == 0 && m.kind == LTN_CONTROL_QUERY) {
        inside(m.query.sql, data, size);
    }
    return 0;
}
