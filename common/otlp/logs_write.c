/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/logs_write.h"

#include <errno.h>

#include "otlp/pb_write.h"
#include "otlp/write_int.h"

enum { RESOURCE, SCOPE, LEVELS };

void ltn_otlp_logs_begin(struct ltn_otlp_logs_writer *w, struct ltn_buf *out)
{
    *w = (struct ltn_otlp_logs_writer){.out = out};
}

int ltn_otlp_logs_resource(struct ltn_otlp_logs_writer *w, struct ltn_otlp_attrs attrs)
{
    ltn_otlp_levels_close(w->out, w->level, RESOURCE, LEVELS);
    if (ltn_buf_error(w->out) != 0) {
        return ltn_buf_error(w->out);
    }
    struct ltn_otlp_level *level = &w->level[RESOURCE];
    ltn_otlp_level_open(w->out, level, 1);
    ltn_otlp_put_resource(w->out, attrs);
    int rc = ltn_otlp_settle(w->out, level->start);
    level->open = rc == 0;
    return rc;
}

int ltn_otlp_logs_scope(struct ltn_otlp_logs_writer *w, const char *name, const char *version)
{
    ltn_otlp_levels_close(w->out, w->level, SCOPE, LEVELS);
    if (ltn_buf_error(w->out) != 0) {
        return ltn_buf_error(w->out);
    }
    if (!w->level[RESOURCE].open) {
        return -EINVAL;
    }
    struct ltn_otlp_level *level = &w->level[SCOPE];
    ltn_otlp_level_open(w->out, level, 2);
    ltn_otlp_put_scope(w->out, name, version);
    int rc = ltn_otlp_settle(w->out, level->start);
    level->open = rc == 0;
    return rc;
}

static void put_id(struct ltn_buf *b, uint32_t number, struct ltn_otlp_str id)
{
    if (id.n > 0) {
        ltn_pb_put_bytes_field(b, number, id.p, id.n);
    }
}

int ltn_otlp_logs_record(struct ltn_otlp_logs_writer *w, const struct ltn_otlp_log *log)
{
    struct ltn_buf *b = w->out;
    if (ltn_buf_error(b) != 0) {
        return ltn_buf_error(b);
    }
    if (!w->level[SCOPE].open) {
        return -EINVAL;
    }
    size_t start = b->len;
    size_t mark = ltn_pb_open(b, 2);
    if (log->time_ns != 0) {
        ltn_pb_put_i64_field(b, 1, log->time_ns);
    }
    if (log->severity != 0) {
        ltn_pb_put_u64_field(b, 2, (uint64_t)(int64_t)log->severity);
    }
    ltn_otlp_put_text_opt(b, 3, log->severity_text);
    if (log->body.type != LTN_OTLP_NONE) {
        ltn_otlp_put_value(b, 5, &log->body);
    }
    ltn_otlp_put_attrs(b, 6, log->attrs);
    if (log->flags != 0) {
        ltn_pb_put_i32_field(b, 8, log->flags);
    }
    put_id(b, 9, log->trace_id);
    put_id(b, 10, log->span_id);
    if (log->observed_ns != 0) {
        ltn_pb_put_i64_field(b, 11, log->observed_ns);
    }
    ltn_otlp_put_text_opt(b, 12, log->event_name);
    ltn_pb_close(b, mark);
    int rc = ltn_otlp_settle(b, start);
    if (rc == 0) {
        w->level[SCOPE].members = 1;
        w->records++;
    }
    return rc;
}

int ltn_otlp_logs_end(struct ltn_otlp_logs_writer *w)
{
    ltn_otlp_levels_close(w->out, w->level, RESOURCE, LEVELS);
    return ltn_buf_error(w->out);
}
