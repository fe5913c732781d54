/* SPDX-License-Identifier: Apache-2.0 */
#include "http/h1.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"
#include "http/reason.h"

#define MAX_METHOD_BYTES   16
#define MAX_CHUNK_LINE     256
#define MAX_CHUNK_DIGITS   15
#define MAX_DISCARD_BYTES  (64 * 1024)
#define MAX_OUT_HEAD_BYTES (64 * 1024)
#define MAX_EMPTY_LINES    2

enum state {
    ST_START,      /* before the request line */
    ST_FIELDS,     /* header lines */
    ST_LENGTH,     /* body by Content-Length */
    ST_CHUNK_SIZE, /* chunk-size line */
    ST_CHUNK_DATA, /* inside a chunk */
    ST_CHUNK_END,  /* CRLF after a chunk */
    ST_TRAILERS,   /* trailer lines */
    ST_WAIT,       /* request complete, reply outstanding */
    ST_DEAD,       /* no more input */
};

struct ltn_h1 {
    struct ltn_h1_conf conf;
    struct ltn_session_sink sink;
    void *arg;

    enum state state;
    struct ltn_buf line;
    unsigned empty_lines;
    struct ltn_head *head;
    size_t trailer_bytes;

    bool have_host;
    bool chunked;
    bool expect_continue;
    bool keep_alive;
    bool http10;

    void *request;   /* the sink's; NULL when discarded or none */
    bool in_request; /* head delivered, reply not yet complete */
    bool replied;
    uint64_t left; /* of the body or the chunk */
    int32_t next_id;

    bool closing;
    struct ltn_buf out;
    size_t out_pos;
    uint8_t *body; /* follows out */
    size_t body_len;
    size_t body_pos;
    struct ltn_source *source; /* instead of body */
    bool framed;               /* it goes out in chunks */
};

struct ltn_h1 *ltn_h1_new(const struct ltn_h1_conf *conf, const struct ltn_session_sink *sink,
                          void *arg)
{
    struct ltn_h1 *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->conf = *conf;
    s->sink = *sink;
    s->arg = arg;
    s->next_id = 1;
    ltn_buf_init(&s->line, conf->max_header_bytes + 2);
    ltn_buf_init(&s->out, MAX_OUT_HEAD_BYTES);
    return s;
}

static void report_closed(struct ltn_h1 *s)
{
    void *request = s->request;
    s->request = NULL;
    if (request != NULL) {
        s->sink.closed(s->arg, request);
    }
}

void ltn_h1_free(struct ltn_h1 *s)
{
    if (s == NULL) {
        return;
    }
    report_closed(s);
    ltn_head_free(s->head);
    ltn_buf_done(&s->line);
    ltn_buf_done(&s->out);
    free(s->body);
    ltn_source_free(s->source);
    free(s);
}

void ltn_h1_fail(struct ltn_h1 *s, int status)
{
    if (!s->replied) {
        /* No request is known that could choose the form: a google.rpc.Status in JSON. */
        const char *text = ltn_http_reason(status);
        (void)ltn_buf_printf(&s->out,
                             "HTTP/1.1 %d %s\r\nconnection: close\r\n%s"
                             "content-type: application/json\r\ncontent-length: %zu\r\n\r\n"
                             "{\"message\":\"%s\"}",
                             status, text, status == 503 ? "retry-after: 5\r\n" : "",
                             strlen(text) + strlen("{\"message\":\"\"}"), text);
    }
    s->replied = true;
    s->closing = true;
    s->state = ST_DEAD;
    report_closed(s);
}

static int fail(struct ltn_h1 *s, int status, int rc)
{
    ltn_h1_fail(s, status);
    return rc;
}

static int malformed(struct ltn_h1 *s)
{
    return fail(s, 400, LTN_ERR_MALFORMED);
}

/* The target as path with query: origin form as it stands, absolute form without its scheme and
 * authority, "*" only for OPTIONS. */
static bool set_target(struct ltn_h1 *s, const char *target, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (target[i] <= ' ' || target[i] >= 0x7f || target[i] == '#') {
            return false;
        }
    }
    if (n > 7 && strncasecmp(target, "http://", 7) == 0) {
        const char *path = memchr(target + 7, '/', n - 7);
        if (path == NULL || path == target + 7) {
            return false;
        }
        n -= (size_t)(path - target);
        target = path;
    }
    bool star = n == 1 && target[0] == '*' && strcmp(s->head->method, "OPTIONS") == 0;
    if (n == 0 || (target[0] != '/' && !star)) {
        return false;
    }
    s->head->target = ltn_head_text(s->head, target, n);
    return s->head->target != NULL;
}

static int start_line(struct ltn_h1 *s, const char *line, size_t n)
{
    if (n == 0) {
        s->empty_lines++;
        return s->empty_lines > MAX_EMPTY_LINES ? malformed(s) : 0;
    }
    s->head = ltn_head_new(s->conf.max_header_bytes, s->conf.max_header_count + 2);
    if (s->head == NULL) {
        return fail(s, 503, -ENOMEM);
    }
    const char *space = memchr(line, ' ', n);
    if (space == NULL || space - line > MAX_METHOD_BYTES ||
        !ltn_is_token(line, (size_t)(space - line))) {
        return malformed(s);
    }
    s->head->method = ltn_head_text(s->head, line, (size_t)(space - line));
    const char *target = space + 1;
    size_t rest = n - (size_t)(target - line);
    const char *version = memchr(target, ' ', rest);
    if (s->head->method == NULL || version == NULL ||
        !set_target(s, target, (size_t)(version - target))) {
        return s->head->too_large ? fail(s, 414, LTN_ERR_TOO_LARGE) : malformed(s);
    }
    version++;
    rest = n - (size_t)(version - line);
    if (rest != 8 || memcmp(version, "HTTP/", 5) != 0 || version[6] != '.') {
        return malformed(s);
    }
    if (memcmp(version, "HTTP/1.1", 8) != 0 && memcmp(version, "HTTP/1.0", 8) != 0) {
        return fail(s, 505, LTN_ERR_UNSUPPORTED);
    }
    s->http10 = version[7] == '0';
    s->head->version = s->http10 ? 10 : 11;
    s->keep_alive = !s->http10;
    s->have_host = false;
    s->chunked = false;
    s->expect_continue = false;
    s->replied = false;
    s->empty_lines = 0;
    s->state = ST_FIELDS;
    return 0;
}

static bool name_is(const char *name, size_t n, const char *what)
{
    return n == strlen(what) && strncasecmp(name, what, n) == 0;
}

static bool value_is(const char *value, size_t n, const char *what)
{
    return name_is(value, n, what);
}

/* Fields that steer the protocol. 0 or the error of the failed session. */
static int special_field(struct ltn_h1 *s, const char *name, size_t name_len, const char *value,
                         size_t n)
{
    if (name_is(name, name_len, "host")) {
        if (s->have_host) {
            return malformed(s);
        }
        s->have_host = true;
    } else if (name_is(name, name_len, "content-length")) {
        if (s->head->has_length || s->chunked ||
            !ltn_parse_length(value, n, &s->head->content_length)) {
            return malformed(s);
        }
        s->head->has_length = true;
    } else if (name_is(name, name_len, "transfer-encoding")) {
        if (s->head->has_length || s->chunked || s->http10) {
            return malformed(s);
        }
        if (!value_is(value, n, "chunked")) {
            return fail(s, 501, LTN_ERR_UNSUPPORTED);
        }
        s->chunked = true;
    } else if (name_is(name, name_len, "expect")) {
        if (!value_is(value, n, "100-continue")) {
            return fail(s, 417, LTN_ERR_UNSUPPORTED);
        }
        s->expect_continue = !s->http10;
    }
    return 0;
}

static int field_line(struct ltn_h1 *s, const char *line, size_t n)
{
    const char *colon = memchr(line, ':', n);
    if (colon == NULL || !ltn_is_token(line, (size_t)(colon - line))) {
        return malformed(s); /* covers obs-fold and blanks before the colon */
    }
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1;
    size_t value_len = n - name_len - 1;
    while (value_len > 0 && (*value == ' ' || *value == '\t')) {
        value++;
        value_len--;
    }
    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t')) {
        value_len--;
    }
    if (!ltn_is_field_value(value, value_len)) {
        return malformed(s);
    }
    int rc = special_field(s, line, name_len, value, value_len);
    if (rc != 0) {
        return rc;
    }
    rc = ltn_head_add(s->head, line, name_len, value, value_len);
    if (rc != 0) {
        return fail(s, rc == -ENOMEM ? 503 : 431, rc);
    }
    return 0;
}

static void finish_request(struct ltn_h1 *s)
{
    if (s->replied) {
        s->state = s->closing ? ST_DEAD : ST_START;
        return;
    }
    s->state = ST_WAIT;
    if (s->request != NULL) {
        s->sink.end(s->arg, s->request);
    }
}

static int end_of_fields(struct ltn_h1 *s)
{
    if (!s->have_host && !s->http10) {
        return malformed(s);
    }
    struct ltn_head *head = s->head;
    const char *connection = ltn_head_get(head, "connection");
    if (connection != NULL) {
        if (ltn_list_has(connection, "close")) {
            s->keep_alive = false;
        } else if (s->http10 && ltn_list_has(connection, "keep-alive")) {
            s->keep_alive = true;
        }
    }
    head->authority = ltn_head_get(head, "host");
    bool body = s->chunked || (head->has_length && head->content_length > 0);
    s->left = s->chunked ? 0 : head->content_length;
    s->state = !body ? ST_WAIT : s->chunked ? ST_CHUNK_SIZE : ST_LENGTH;
    s->trailer_bytes = 0;
    s->head = NULL;
    s->in_request = true;
    if (!body) {
        s->expect_continue = false;
    }
    int32_t id = s->next_id;
    s->next_id = s->next_id == INT32_MAX ? 1 : s->next_id + 1;
    void *request = s->sink.head(s->arg, id, head, body);
    if (s->state == ST_DEAD) {
        return 0; /* the sink replied and closed */
    }
    if (!s->replied) {
        s->request = request;
        if (s->expect_continue) {
            s->expect_continue = false;
            (void)ltn_buf_puts(&s->out, "HTTP/1.1 100 Continue\r\n\r\n");
        }
    }
    if (!body) {
        finish_request(s);
    }
    return 0;
}

static int chunk_line(struct ltn_h1 *s, const char *line, size_t n)
{
    size_t digits = 0;
    uint64_t size = 0;
    while (digits < n) {
        char c = line[digits];
        unsigned value;
        if (c >= '0' && c <= '9') {
            value = (unsigned)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = (unsigned)(c - 'a') + 10;
        } else if (c >= 'A' && c <= 'F') {
            value = (unsigned)(c - 'A') + 10;
        } else {
            break;
        }
        size = size * 16 + value;
        digits++;
        if (digits > MAX_CHUNK_DIGITS) {
            return malformed(s);
        }
    }
    if (digits == 0 || (digits < n && line[digits] != ';') ||
        !ltn_is_field_value(line + digits, n - digits)) {
        return malformed(s);
    }
    if (size == 0) {
        s->state = ST_TRAILERS;
        return 0;
    }
    s->left = size;
    s->state = ST_CHUNK_DATA;
    return 0;
}

static int trailer_line(struct ltn_h1 *s, const char *line, size_t n)
{
    if (n == 0) {
        finish_request(s);
        return 0;
    }
    const char *colon = memchr(line, ':', n);
    s->trailer_bytes += n;
    if (s->trailer_bytes > s->conf.max_header_bytes) {
        return fail(s, 431, LTN_ERR_TOO_LARGE);
    }
    if (colon == NULL || !ltn_is_token(line, (size_t)(colon - line)) ||
        !ltn_is_field_value(colon, n - (size_t)(colon - line))) {
        return malformed(s);
    }
    return 0;
}

static int one_line(struct ltn_h1 *s, const char *line, size_t n)
{
    switch (s->state) {
    case ST_START:
        return start_line(s, line, n);
    case ST_FIELDS:
        return n == 0 ? end_of_fields(s) : field_line(s, line, n);
    case ST_CHUNK_SIZE:
        return chunk_line(s, line, n);
    case ST_CHUNK_END:
        s->state = ST_CHUNK_SIZE;
        return n == 0 ? 0 : malformed(s);
    case ST_TRAILERS:
        return trailer_line(s, line, n);
    default:
        return malformed(s);
    }
}

static size_t line_limit(const struct ltn_h1 *s)
{
    if (s->state == ST_CHUNK_SIZE) {
        return MAX_CHUNK_LINE;
    }
    return s->state == ST_CHUNK_END ? 2 : s->conf.max_header_bytes;
}

static int line_too_long(struct ltn_h1 *s)
{
    if (s->state == ST_START) {
        return fail(s, 414, LTN_ERR_TOO_LARGE);
    }
    if (s->state == ST_FIELDS || s->state == ST_TRAILERS) {
        return fail(s, 431, LTN_ERR_TOO_LARGE);
    }
    return malformed(s);
}

/* Takes bytes up to the end of a line; whole lines are handed on without their CRLF. */
static int feed_line(struct ltn_h1 *s, const uint8_t *p, size_t n, size_t *ret_used)
{
    const uint8_t *lf = memchr(p, '\n', n);
    size_t part = lf == NULL ? n : (size_t)(lf - p) + 1;
    *ret_used = part;
    if (s->line.len + part > line_limit(s)) {
        return line_too_long(s);
    }
    if (ltn_buf_append(&s->line, p, part) != 0) {
        return fail(s, 503, -ENOMEM);
    }
    if (lf == NULL) {
        return 0;
    }
    size_t len = s->line.len;
    const char *line = s->line.data;
    /* A bare LF, a CR or NUL elsewhere: different readers would see different lines. */
    if (len < 2 || line[len - 2] != '\r' || memchr(line, '\r', len - 2) != NULL ||
        memchr(line, '\0', len) != NULL) {
        return malformed(s);
    }
    int rc = one_line(s, line, len - 2);
    ltn_buf_reset(&s->line);
    return rc;
}

static size_t feed_body(struct ltn_h1 *s, const uint8_t *p, size_t n)
{
    size_t part = n < s->left ? n : (size_t)s->left;
    s->left -= part;
    if (s->request != NULL) {
        s->sink.data(s->arg, s->request, p, part);
    }
    if (s->left == 0 && s->state != ST_DEAD) {
        if (s->state == ST_CHUNK_DATA) {
            s->state = ST_CHUNK_END;
        } else {
            finish_request(s);
        }
    }
    return part;
}

int ltn_h1_feed(struct ltn_h1 *s, const uint8_t *p, size_t n, size_t *ret_used)
{
    size_t pos = 0;
    int rc = 0;
    while (pos < n && rc == 0 && !ltn_h1_blocked(s) && s->state != ST_DEAD) {
        size_t used = 0;
        if (s->state == ST_LENGTH || s->state == ST_CHUNK_DATA) {
            used = feed_body(s, p + pos, n - pos);
        } else {
            if (s->state == ST_START && s->closing) {
                break;
            }
            rc = feed_line(s, p + pos, n - pos, &used);
        }
        pos += used;
    }
    *ret_used = pos;
    return rc;
}

static bool may_discard_rest(const struct ltn_h1 *s)
{
    if (s->state == ST_WAIT) {
        return true;
    }
    /* A client that waits for "100 Continue" may or may not send the body after a refusal. */
    return s->state == ST_LENGTH && s->left <= MAX_DISCARD_BYTES && !s->expect_continue;
}

static int write_head(struct ltn_h1 *s, const struct ltn_session_reply *r, bool close)
{
    struct ltn_buf *b = &s->out;
    (void)ltn_buf_printf(b, "HTTP/1.1 %d %s\r\n", r->status, ltn_http_reason(r->status));
    for (size_t i = 0; i < r->field_count; i++) {
        (void)ltn_buf_printf(b, "%s: %s\r\n", r->fields[i].name, r->fields[i].value);
    }
    if (r->source != NULL) {
        if (!s->http10) {
            (void)ltn_buf_puts(b, "transfer-encoding: chunked\r\n");
        }
    } else if (r->status != 204 && r->status != 304) {
        (void)ltn_buf_printf(b, "content-length: %zu\r\n", r->body_len);
    }
    if (close) {
        (void)ltn_buf_puts(b, "connection: close\r\n");
    } else if (s->http10) {
        (void)ltn_buf_puts(b, "connection: keep-alive\r\n");
    }
    (void)ltn_buf_puts(b, "\r\n");
    return ltn_buf_error(b);
}

int ltn_h1_reply(struct ltn_h1 *s, struct ltn_session_reply *reply)
{
    if (!s->in_request || s->replied) {
        free(reply->body);
        ltn_source_free(reply->source);
        reply->body = NULL;
        reply->source = NULL;
        return LTN_ERR_CLOSED;
    }
    bool discard = may_discard_rest(s);
    /* Without a length and without chunks the end of the connection is the end of the body. */
    if (!s->keep_alive || reply->close || !discard || (reply->source != NULL && s->http10)) {
        s->closing = true;
    }
    int rc = write_head(s, reply, s->closing);
    s->replied = true;
    if (rc != 0 || reply->head_only || reply->status == 204 || reply->status == 304) {
        free(reply->body);
        ltn_source_free(reply->source);
    } else {
        s->source = reply->source;
        s->framed = !s->http10;
        s->body = reply->body;
        s->body_len = reply->body_len;
        s->body_pos = 0;
    }
    reply->body = NULL;
    reply->source = NULL;
    if (rc != 0) {
        s->closing = true;
    }
    s->request = NULL; /* the sink replied, it knows */
    s->in_request = false;
    if (s->state == ST_WAIT) {
        s->state = ST_START;
    }
    if (s->closing) {
        s->state = ST_DEAD;
    }
    return rc;
}

/* Bytes around a chunk: its size in six digits, two line ends, and the last chunk. */
#define CHUNK_HEAD_BYTES 8
#define CHUNK_ROOM_BYTES (CHUNK_HEAD_BYTES + 2)
#define MAX_CHUNK_BYTES  0xffffff

static void end_source(struct ltn_h1 *s)
{
    ltn_source_free(s->source);
    s->source = NULL;
}

/* A chunk of the source's body, or the last one; 0 when there is no room for one. */
static size_t pull_source(struct ltn_h1 *s, uint8_t *dst, size_t room)
{
    size_t around = s->framed ? CHUNK_ROOM_BYTES : 0;
    if (room <= around) {
        return 0;
    }
    uint8_t *at = dst + (s->framed ? CHUNK_HEAD_BYTES : 0);
    size_t most = room - around < MAX_CHUNK_BYTES ? room - around : MAX_CHUNK_BYTES;
    ssize_t n = ltn_source_read(s->source, at, most);
    if (n <= 0) {
        end_source(s);
    }
    if (n < 0) { /* cut off without the last chunk, which tells the client */
        s->closing = true;
        s->state = ST_DEAD;
        return 0;
    }
    if (!s->framed) {
        return (size_t)n;
    }
    if (n == 0) {
        memcpy(dst, "0\r\n\r\n", 5);
        return 5;
    }
    char head[CHUNK_HEAD_BYTES + 1];
    (void)snprintf(head, sizeof(head), "%06zx\r\n", (size_t)n & MAX_CHUNK_BYTES);
    memcpy(dst, head, CHUNK_HEAD_BYTES);
    memcpy(at + n, "\r\n", 2);
    return (size_t)n + CHUNK_ROOM_BYTES;
}

size_t ltn_h1_pull(struct ltn_h1 *s, uint8_t *dst, size_t room)
{
    size_t done = 0;
    size_t part = s->out.len - s->out_pos;
    part = part < room ? part : room;
    if (part > 0) {
        memcpy(dst, s->out.data + s->out_pos, part);
        s->out_pos += part;
        done = part;
    }
    if (s->out_pos == s->out.len) {
        ltn_buf_reset(&s->out);
        s->out_pos = 0;
        if (s->source != NULL) {
            return done + pull_source(s, dst + done, room - done);
        }
        part = s->body_len - s->body_pos;
        part = part < room - done ? part : room - done;
        if (part > 0) {
            memcpy(dst + done, s->body + s->body_pos, part);
            s->body_pos += part;
            done += part;
        }
        if (s->body != NULL && s->body_pos == s->body_len) {
            free(s->body);
            s->body = NULL;
            s->body_len = 0;
            s->body_pos = 0;
        }
    }
    return done;
}

bool ltn_h1_has_output(const struct ltn_h1 *s)
{
    return s->out.len > s->out_pos || s->body_len > s->body_pos || s->source != NULL;
}

bool ltn_h1_closing(const struct ltn_h1 *s)
{
    return s->closing && s->state == ST_DEAD;
}

bool ltn_h1_blocked(const struct ltn_h1 *s)
{
    /* Also while the reply's body is still going out: it has but one place. */
    return s->state == ST_WAIT || (s->state == ST_START && (s->body != NULL || s->source != NULL ||
                                                            s->out.len > MAX_OUT_HEAD_BYTES / 4));
}

bool ltn_h1_in_head(const struct ltn_h1 *s)
{
    return s->state == ST_FIELDS || (s->state == ST_START && s->line.len > 0);
}

bool ltn_h1_idle(const struct ltn_h1 *s)
{
    return s->state == ST_START && s->line.len == 0;
}

void ltn_h1_set_closing(struct ltn_h1 *s)
{
    if (ltn_h1_idle(s)) {
        s->closing = true;
        s->state = ST_DEAD;
    } else {
        s->keep_alive = false;
    }
}
