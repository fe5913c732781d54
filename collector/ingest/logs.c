/* SPDX-License-Identifier: Apache-2.0 */
/* Log records of any client, with everything they say, within limits. */
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "ingest/internal.h"
#include "otlp/value_json.h"

#define BODY_MAX_BYTES  ((size_t)65536)
#define VALUE_MAX_BYTES ((size_t)8192) /* of one attribute's text */
#define ATTRS_MAX_BYTES ((size_t)65536)
#define KEY_MAX_BYTES   128
/* Of one request; that many take the writer some 0.4 s, and others wait for it. */
#define LOGS_MAX 65536

static const char *copy(struct ltn_decoder *d, const char *p, size_t n)
{
    return n == 0 ? "" : ltn_arena_strndup(&d->u->arena, p, n);
}

/* Attributes as a JSON object in the arena; those that do not fit any more are left out and
 * counted. "" without any; NULL when the arena is full. */
static const char *attrs_json(struct ltn_decoder *d, struct ltn_otlp_attrs attrs, uint32_t *cut)
{
    struct ltn_buf b;
    struct ltn_json j;
    const char *out = NULL;
    if (attrs.n == 0)
        return "";
    ltn_buf_init(&b, 2 * ATTRS_MAX_BYTES);
    ltn_json_init(&j, &b);
    ltn_json_open_object(&j);
    for (size_t i = 0; i < attrs.n; i++) {
        char key[KEY_MAX_BYTES];
        const struct ltn_otlp_attr *a = &attrs.items[i];
        struct ltn_json before = j;
        size_t len = b.len;
        ltn_text_clean(key, sizeof(key), a->key.p, a->key.n);
        ltn_json_key(&j, key);
        if (ltn_otlp_value_json(&j, &a->value, VALUE_MAX_BYTES, cut) == 0 &&
            ltn_buf_error(&b) == 0 && b.len <= ATTRS_MAX_BYTES)
            continue;
        j = before;
        b.len = len;
        b.error = 0;
        (*cut)++;
    }
    ltn_json_close_object(&j);
    if (ltn_buf_error(&b) == 0)
        out = copy(d, ltn_buf_str(&b), b.len);
    ltn_buf_done(&b);
    return out;
}

/* The source of the group's resource; made once for all records of it. */
static const struct ltn_update_log_source *source_of(struct ltn_decoder *d,
                                                     const struct ltn_otlp_group *g, uint32_t *cut)
{
    struct ltn_update *u = d->u;
    if (u->last_log != NULL && u->last_log->source->index == g->resource_index)
        return u->last_log->source;
    struct ltn_update_log_source *s = ltn_arena_calloc(&u->arena, 1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->index = g->resource_index;
    s->service = ltn_decode_attr_text(d, g->resource, "service.name", LTN_NAME_BYTES);
    s->instance = ltn_decode_attr_text(d, g->resource, "service.instance.id", LTN_NAME_BYTES);
    s->attrs = attrs_json(d, g->resource, cut);
    return s->service != NULL && s->instance != NULL && s->attrs != NULL ? s : NULL;
}

/* A text of several lines, clean otherwise: "\r\n" becomes "\n", other control characters and
 * invalid UTF-8 become '?'. NULL when the arena is full. */
static char *body_text(struct ltn_decoder *d, struct ltn_otlp_str s)
{
    char *out = ltn_arena_alloc(&d->u->arena, s.n + 1);
    size_t n = 0;
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t len = c < 0x80 ? 1 : ltn_utf8_len(s.p + i, s.n - i);
        if (c == '\r' && i + 1 < s.n && s.p[i + 1] == '\n') {
            i++;
            continue;
        }
        /* C1 controls are two bytes: 0xc2 and 0x80 to 0x9f. */
        bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ||
                       (len == 2 && c == 0xc2 && (unsigned char)s.p[i + 1] < 0xa0);
        if (len == 0 || control) {
            out[n++] = '?';
        } else {
            memcpy(out + n, s.p + i, len);
            n += len;
        }
        i += len > 0 ? len : 1;
    }
    out[n] = '\0';
    return out;
}

/* False when the arena is full. An empty value is no body. */
static bool take_body(struct ltn_decoder *d, const struct ltn_otlp_value *v,
                      struct ltn_update_log *o)
{
    if (v->type == LTN_OTLP_NONE)
        return true;
    if (v->type == LTN_OTLP_STRING) {
        size_t n = ltn_otlp_text_fit(v->str.p, v->str.n, BODY_MAX_BYTES);
        o->cut += n < v->str.n ? 1 : 0;
        o->body = n > 0 ? body_text(d, (struct ltn_otlp_str){v->str.p, n}) : "";
        return o->body != NULL;
    }
    struct ltn_buf b;
    struct ltn_json j;
    ltn_buf_init(&b, BODY_MAX_BYTES);
    ltn_json_init(&j, &b);
    o->body_json = true;
    if (ltn_otlp_value_json(&j, v, VALUE_MAX_BYTES, &o->cut) != 0 || ltn_buf_error(&b) != 0) {
        ltn_buf_reset(&b); /* a structure cannot be cut and stay one */
        (void)ltn_buf_puts(&b, "null");
        o->cut++;
    }
    o->body = copy(d, ltn_buf_str(&b), b.len);
    ltn_buf_done(&b);
    return o->body != NULL;
}

static const uint8_t *copy_id(struct ltn_decoder *d, struct ltn_otlp_str id)
{
    return (const uint8_t *)ltn_arena_strndup(&d->u->arena, id.p, id.n);
}

/* Identifiers of all zeros count as none, as the protocol has it. */
static bool is_id(struct ltn_otlp_str id)
{
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] != 0)
            return true;
    return false;
}

static uint64_t as_time(uint64_t ns)
{
    return ns <= INT64_MAX ? ns : INT64_MAX;
}

int ltn_decode_log(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                   const struct ltn_otlp_log *log)
{
    struct ltn_update *u = d->u;
    if (u->log_count >= LOGS_MAX) {
        ltn_decode_reject(d, (struct ltn_otlp_str){NULL, 0},
                          "more than 65,536 log records in one request");
        return 0;
    }
    struct ltn_update_log *o = ltn_arena_calloc(&u->arena, 1, sizeof(*o));
    if (o == NULL)
        return LTN_ERR_TOO_LARGE;
    o->source = source_of(d, g, &o->cut);
    o->time_ns = as_time(log->time_ns);
    o->observed_ns = as_time(log->observed_ns);
    o->severity_number = log->severity;
    o->flags = log->flags;
    o->severity = ltn_decode_text(d, log->severity_text, 32);
    o->event = ltn_decode_text(d, log->event_name, LTN_NAME_BYTES);
    o->scope = ltn_decode_text(d, g->scope_name, LTN_NAME_BYTES);
    o->attrs = attrs_json(d, log->attrs, &o->cut);
    if (o->source == NULL || o->severity == NULL || o->event == NULL || o->scope == NULL ||
        o->attrs == NULL || !take_body(d, &log->body, o))
        return LTN_ERR_TOO_LARGE;
    if (is_id(log->trace_id) && (o->trace_id = copy_id(d, log->trace_id)) == NULL)
        return LTN_ERR_TOO_LARGE;
    if (is_id(log->span_id) && (o->span_id = copy_id(d, log->span_id)) == NULL)
        return LTN_ERR_TOO_LARGE;
    if (u->last_log != NULL)
        u->last_log->next = o;
    else
        u->logs = o;
    u->last_log = o;
    u->log_count++;
    return 0;
}
