/* SPDX-License-Identifier: Apache-2.0 */
/* Replies on HTTP/2 streams: whole ones, and those of many messages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "http/h2-internals.h"

#define MAX_REPLY_FIELDS 48

static nghttp2_nv flagged_nv(const char *name, const char *value, uint8_t flags)
{
    return (nghttp2_nv){
        .name = (uint8_t *)(uintptr_t)name,
        .value = (uint8_t *)(uintptr_t)value,
        .namelen = strlen(name),
        .valuelen = strlen(value),
        .flags = flags,
    };
}

static nghttp2_nv make_nv(const char *name, const char *value)
{
    return flagged_nv(name, value, NGHTTP2_NV_FLAG_NONE);
}

static ssize_t read_body(nghttp2_session *ng, int32_t id, uint8_t *dst, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct ltn_h2_stream *st = source->ptr;
    struct ltn_h2 *s = user;
    size_t part = st->body_len - st->body_pos;
    part = part < room ? part : room;
    if (part > 0) {
        memcpy(dst, st->body + st->body_pos, part);
        st->body_pos += part;
        s->progress += part;
    }
    if (st->body_pos == st->body_len) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (st->trailer_count > 0) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (nghttp2_submit_trailer(ng, id, st->trailers, st->trailer_count) != 0) {
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
            }
        }
    }
    return (ssize_t)part;
}

static ssize_t read_source(nghttp2_session *ng, int32_t id, uint8_t *dst, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct ltn_h2_stream *st = source->ptr;
    struct ltn_h2 *s = user;
    (void)ng;
    (void)id;
    ssize_t n = ltn_source_read(st->source, dst, room);
    if (n < 0) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (n == 0) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    s->progress += (size_t)n;
    return n;
}

static int keep_trailers(struct ltn_h2_stream *st, const struct ltn_http_field *fields, size_t n)
{
    if (n == 0) {
        return 0;
    }
    struct ltn_arena *a = &st->trailer_arena;
    st->trailers = ltn_arena_calloc(a, n, sizeof(*st->trailers));
    if (st->trailers == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const struct ltn_http_field *f = &fields[i];
        char *name = ltn_arena_strndup(a, f->name, strlen(f->name));
        char *value = ltn_arena_strndup(a, f->value, strlen(f->value));
        if (name == NULL || value == NULL) {
            return -ENOMEM;
        }
        st->trailers[i] = make_nv(name, value);
    }
    st->trailer_count = n;
    return 0;
}

static int submit(struct ltn_h2 *s, struct ltn_h2_stream *st, const struct ltn_session_reply *r)
{
    nghttp2_nv nv[MAX_REPLY_FIELDS + 2];
    size_t n = 0;
    char status[8];
    char length[24];
    uint8_t flags = r->lasting ? NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE
                               : NGHTTP2_NV_FLAG_NONE;
    if (r->status != 200) {
        (void)snprintf(status, sizeof(status), "%d", r->status);
    }
    nv[n++] = make_nv(":status", r->status != 200 ? status : "200");
    for (size_t i = 0; i < r->field_count && i < MAX_REPLY_FIELDS; i++) {
        nv[n++] = flagged_nv(r->fields[i].name, r->fields[i].value, flags);
    }
    if (!r->no_length && st->source == NULL && r->status != 204 && r->status != 304) {
        (void)snprintf(length, sizeof(length), "%zu", r->body_len);
        nv[n++] = make_nv("content-length", length);
    }
    nghttp2_data_provider provider = {.source.ptr = st, .read_callback = read_body};
    if (st->source != NULL) {
        provider.read_callback = read_source;
    }
    bool body = (st->body_len > 0 || st->source != NULL || st->trailer_count > 0) && !r->head_only;
    int rc = nghttp2_submit_response(s->ng, st->id, nv, n, body ? &provider : NULL);
    if (rc == NGHTTP2_ERR_NOMEM) {
        return -ENOMEM;
    }
    return rc == 0 ? 0 : LTN_ERR_INTERNAL;
}

int ltn_h2_reply(struct ltn_h2 *s, int32_t id, struct ltn_session_reply *reply)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    uint8_t *body = reply->body;
    struct ltn_source *source = reply->source;
    reply->body = NULL;
    reply->source = NULL;
    if (st == NULL || st->done) {
        free(body);
        ltn_source_free(source);
        return LTN_ERR_CLOSED;
    }
    st->request = NULL; /* the sink replied, it knows */
    st->done = true;
    st->reset_at_once = reply->no_length;
    st->body = body;
    st->body_len = reply->body_len;
    st->source = source;
    int rc = keep_trailers(st, reply->trailers, reply->trailer_count);
    if (rc == 0) {
        rc = submit(s, st, reply);
    }
    if (rc != 0) {
        ltn_h2_reset(s, id, NGHTTP2_INTERNAL_ERROR);
        return rc;
    }
    st->replied = true;
    s->unsent_count++;
    return 0;
}

/* ---- replies of many messages ---- */

static ssize_t read_stream(nghttp2_session *ng, int32_t id, uint8_t *dst, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct ltn_h2_stream *st = source->ptr;
    struct ltn_h2 *s = user;
    size_t part = st->queue.len < room ? st->queue.len : room;
    if (part == 0 && !st->ending) {
        return NGHTTP2_ERR_DEFERRED;
    }
    if (part > 0) {
        memcpy(dst, st->queue.data, part);
        ltn_buf_consume(&st->queue, part);
        s->progress += part;
    }
    if (st->queue.len == 0) {
        ltn_buf_done(&st->queue); /* an idle stream keeps no buffer */
        if (st->ending) {
            *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (nghttp2_submit_trailer(ng, id, st->trailers, st->trailer_count) != 0) {
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
            }
        }
    }
    return (ssize_t)part;
}

int ltn_h2_stream_begin(struct ltn_h2 *s, int32_t id, const struct ltn_http_field *fields, size_t n)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    nghttp2_nv nv[MAX_REPLY_FIELDS + 1];
    size_t count = 0;
    if (st == NULL || st->done) {
        return LTN_ERR_CLOSED;
    }
    nv[count++] = make_nv(":status", "200");
    for (size_t i = 0; i < n && i < MAX_REPLY_FIELDS; i++) {
        nv[count++] = make_nv(fields[i].name, fields[i].value);
    }
    nghttp2_data_provider provider = {.source.ptr = st, .read_callback = read_stream};
    int rc = nghttp2_submit_response(s->ng, id, nv, count, &provider);
    if (rc != 0) {
        return rc == NGHTTP2_ERR_NOMEM ? -ENOMEM : LTN_ERR_INTERNAL;
    }
    st->done = true;
    st->live = true;
    st->reset_at_once = true;
    return 0;
}

int ltn_h2_stream_send(struct ltn_h2 *s, int32_t id, const uint8_t *prefix, size_t prefix_n,
                       const void *p, size_t n, size_t max_waiting)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st == NULL || !st->live || st->ending) {
        return LTN_ERR_CLOSED;
    }
    if (n > max_waiting || st->queue.len > max_waiting - n) {
        return LTN_ERR_BUSY;
    }
    if (ltn_buf_reserve(&st->queue, prefix_n + n) == NULL) {
        return -ENOMEM;
    }
    int rc = ltn_buf_append(&st->queue, prefix, prefix_n);
    if (rc == 0 && n > 0) {
        rc = ltn_buf_append(&st->queue, p, n);
    }
    /* Fails when the stream does not wait: it then sends on by itself. */
    (void)nghttp2_session_resume_data(s->ng, id);
    return rc;
}

size_t ltn_h2_stream_waiting(struct ltn_h2 *s, int32_t id)
{
    const struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    return st != NULL ? st->queue.len : 0;
}

void ltn_h2_stream_end(struct ltn_h2 *s, int32_t id, const struct ltn_http_field *trailers,
                       size_t n)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st == NULL || !st->live || st->ending) {
        return;
    }
    st->request = NULL; /* the sink ended it, it knows */
    st->ending = true;
    if (keep_trailers(st, trailers, n) != 0) {
        ltn_h2_reset(s, id, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    st->replied = true; /* the write timeout watches over the rest */
    s->unsent_count++;
    (void)nghttp2_session_resume_data(s->ng, id);
}
