/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/logs_read.h"

#include "otlp/read_int.h"

/* Fields of LogRecord that are single numbers. */
static void log_scalar(struct ltn_otlp_log *log, const struct ltn_pb_field *f)
{
    switch (f->number << 3 | f->type) {
    case 1 << 3 | LTN_PB_I64:
        log->time_ns = f->value;
        break;
    case 2 << 3 | LTN_PB_VARINT:
        log->severity = (int32_t)f->value;
        break;
    case 8 << 3 | LTN_PB_I32:
        log->flags = (uint32_t)f->value;
        break;
    case 11 << 3 | LTN_PB_I64:
        log->observed_ns = f->value;
        break;
    default:
        break;
    }
}

static int read_body(const struct ltn_pb_cur *c, const struct ltn_pb_field *f,
                     struct ltn_otlp_log *log, bool *strindex)
{
    struct ltn_pb_cur sub;
    int rc = ltn_pb_enter(c, f, &sub);
    return rc < 0 ? rc : ltn_otlp_value_read(&sub, &log->body, strindex);
}

static int log_len_field(struct ltn_otlp_reader *r, const struct ltn_pb_cur *c,
                         const struct ltn_pb_field *f, struct ltn_otlp_log *log, bool *strindex)
{
    switch (f->number) {
    case 3:
        log->severity_text = ltn_otlp_field_text(f, &log->bad_utf8);
        return 0;
    case 5:
        return read_body(c, f, log, strindex);
    case 6:
        return ltn_otlp_attr_read(c, f, &r->point);
    case 9:
        log->trace_id = ltn_otlp_field_str(f);
        return 0;
    case 10:
        log->span_id = ltn_otlp_field_str(f);
        return 0;
    case 12:
        log->event_name = ltn_otlp_field_text(f, &log->bad_utf8);
        return 0;
    default:
        return 0;
    }
}

/* An identifier of the wrong length counts as absent. */
static void fix_id(struct ltn_otlp_str *id, size_t n)
{
    if (id->n != n) {
        *id = (struct ltn_otlp_str){"", 0};
    }
}

static int read_record(struct ltn_otlp_reader *r, struct ltn_pb_cur c, void *arg)
{
    const struct ltn_otlp_logs_sink *sink = arg;
    const struct ltn_otlp_str empty = {"", 0};
    struct ltn_otlp_log log = {
        .severity_text = empty, .event_name = empty, .trace_id = empty, .span_id = empty};
    struct ltn_pb_field f;
    bool strindex = false;
    int reject = ltn_otlp_group_reject(r);
    int rc = ltn_otlp_count_record(r);
    if (rc < 0) {
        return rc;
    }
    ltn_otlp_attrs_reset(&r->point);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.type != LTN_PB_LEN) {
            log_scalar(&log, &f);
            continue;
        }
        rc = log_len_field(r, &c, &f, &log, &strindex);
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0) {
        return rc;
    }
    if (reject < 0) {
        reject = strindex ? LTN_OTLP_REJECT_STRINDEX : r->point.reject;
    }
    if (reject >= 0) {
        ltn_otlp_count_reject(r, reject, (struct ltn_otlp_str){NULL, 0});
        return 0;
    }
    log.attrs = ltn_otlp_attrs_view(&r->point);
    fix_id(&log.trace_id, 16);
    fix_id(&log.span_id, 8);
    r->counts->records++;
    return sink->on_log(sink->ctx, &r->group, &log);
}

int ltn_otlp_logs_read(struct ltn_otlp_reader *r, const void *data, size_t n,
                       const struct ltn_otlp_logs_sink *sink, struct ltn_otlp_counts *ret_counts)
{
    struct ltn_otlp_logs_sink copy = *sink;
    *ret_counts = (struct ltn_otlp_counts){.records = 0};
    r->counts = ret_counts;
    return ltn_otlp_walk(r, data, n, read_record, &copy);
}
