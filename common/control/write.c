/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/text.h"
#include "control/message.h"
#include "otlp/pb_write.h"

struct ltn_control_str ltn_control_str(const char *s)
{
    return (struct ltn_control_str){s != NULL ? s : "", s != NULL ? strlen(s) : 0};
}

/* proto3 leaves out what is zero. */

static void put_str(struct ltn_buf *b, uint32_t number, struct ltn_control_str s)
{
    if (s.n > 0) {
        ltn_pb_put_bytes_field(b, number, s.p, s.n);
    }
}

static void put_u64(struct ltn_buf *b, uint32_t number, uint64_t v)
{
    if (v != 0) {
        ltn_pb_put_u64_field(b, number, v);
    }
}

static void put_fixed(struct ltn_buf *b, uint32_t number, uint64_t v)
{
    if (v != 0) {
        ltn_pb_put_i64_field(b, number, v);
    }
}

static void put_f64(struct ltn_buf *b, uint32_t number, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    put_fixed(b, number, bits);
}

void ltn_control_put_hello(struct ltn_buf *b, const struct ltn_control_hello *m)
{
    size_t mark = ltn_pb_open(b, 1);
    put_str(b, 1, m->node);
    put_str(b, 2, m->cluster);
    put_str(b, 3, m->version);
    put_str(b, 4, m->boot_id);
    put_fixed(b, 5, m->agent_start_unix_ns);
    put_str(b, 7, m->instance);
    ltn_pb_close(b, mark);
}

void ltn_control_put_ping(struct ltn_buf *b, const struct ltn_control_ping *m)
{
    size_t mark = ltn_pb_open(b, 2);
    put_u64(b, 1, m->sequence);
    put_fixed(b, 2, m->t1_unix_ns);
    if (m->last_offset_ns != 0) {
        ltn_pb_put_sint_field(b, 3, m->last_offset_ns);
    }
    put_u64(b, 4, m->last_round_trip_ns);
    ltn_pb_close(b, mark);
}

void ltn_control_put_end(struct ltn_buf *b, const struct ltn_control_end *m)
{
    size_t mark = ltn_pb_open(b, 4);
    put_u64(b, 1, m->id);
    put_u64(b, 2, (uint64_t)(int64_t)m->code);
    put_str(b, 3, m->message);
    put_u64(b, 4, m->truncated ? 1 : 0);
    put_u64(b, 5, m->rows);
    put_u64(b, 6, m->elapsed_ns);
    ltn_pb_close(b, mark);
}

void ltn_control_put_ack(struct ltn_buf *b, struct ltn_control_str id)
{
    size_t mark = ltn_pb_open(b, 5);
    put_str(b, 1, id);
    ltn_pb_close(b, mark);
}

void ltn_control_put_welcome(struct ltn_buf *b, const struct ltn_control_welcome *m)
{
    size_t mark = ltn_pb_open(b, 1);
    put_str(b, 1, m->collector);
    put_str(b, 2, m->version);
    put_u64(b, 3, m->clock_interval_ns);
    ltn_pb_close(b, mark);
}

void ltn_control_put_pong(struct ltn_buf *b, const struct ltn_control_pong *m)
{
    size_t mark = ltn_pb_open(b, 2);
    put_u64(b, 1, m->sequence);
    put_fixed(b, 2, m->t1_unix_ns);
    put_fixed(b, 3, m->t2_unix_ns);
    put_fixed(b, 4, m->t3_unix_ns);
    ltn_pb_close(b, mark);
}

void ltn_control_put_verdict(struct ltn_buf *b, const struct ltn_control_verdict *m)
{
    size_t mark = ltn_pb_open(b, 4);
    put_str(b, 1, m->id);
    put_str(b, 2, m->job);
    put_u64(b, 3, m->rank);
    put_u64(b, 4, m->state);
    put_fixed(b, 5, m->since_unix_ns);
    put_f64(b, 6, m->effect);
    put_str(b, 7, m->cause);
    put_f64(b, 8, m->explained_share);
    ltn_pb_close(b, mark);
}

void ltn_control_put_query(struct ltn_buf *b, const struct ltn_control_query *m)
{
    size_t mark = ltn_pb_open(b, 5);
    put_u64(b, 1, m->id);
    put_str(b, 2, m->sql);
    put_u64(b, 3, m->max_rows);
    put_u64(b, 4, m->max_bytes);
    put_u64(b, 5, m->timeout_ns);
    ltn_pb_close(b, mark);
}

void ltn_control_put_cancel(struct ltn_buf *b, uint64_t id)
{
    size_t mark = ltn_pb_open(b, 6);
    put_u64(b, 1, id);
    ltn_pb_close(b, mark);
}

void ltn_control_put_drain(struct ltn_buf *b, uint64_t within_ns)
{
    size_t mark = ltn_pb_open(b, 7);
    put_u64(b, 1, within_ns);
    ltn_pb_close(b, mark);
}

void ltn_control_open_page(struct ltn_control_page_writer *w, struct ltn_buf *b, uint64_t id,
                           uint32_t page)
{
    w->b = b;
    w->page = ltn_pb_open(b, 3);
    put_u64(b, 1, id);
    put_u64(b, 2, page);
}

void ltn_control_put_column(struct ltn_control_page_writer *w, const char *name)
{
    ltn_pb_put_str_field(w->b, 3, name);
}

void ltn_control_open_row(struct ltn_control_page_writer *w)
{
    w->row = ltn_pb_open(w->b, 4);
}

void ltn_control_put_cell(struct ltn_buf *b, const struct ltn_control_cell *c)
{
    size_t mark = ltn_pb_open(b, 1);
    switch (c->type) {
    case LTN_CONTROL_NULL:
        break;
    case LTN_CONTROL_INTEGER:
        ltn_pb_put_sint_field(b, 1, c->integer);
        break;
    case LTN_CONTROL_REAL:
        ltn_pb_put_f64_field(b, 2, c->real);
        break;
    case LTN_CONTROL_TEXT:
    case LTN_CONTROL_BLOB: {
        bool text = c->type == LTN_CONTROL_TEXT && ltn_utf8_valid(c->bytes.p, c->bytes.n);
        ltn_pb_put_bytes_field(b, text ? 3 : 4, c->bytes.p, c->bytes.n);
        break;
    }
    }
    ltn_pb_close(b, mark);
}

void ltn_control_close_row(struct ltn_control_page_writer *w)
{
    ltn_pb_close(w->b, w->row);
}

void ltn_control_close_page(struct ltn_control_page_writer *w)
{
    ltn_pb_close(w->b, w->page);
}
