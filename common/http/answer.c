/* SPDX-License-Identifier: Apache-2.0 */
#include "http/answer.h"

#include <stddef.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "http/server-internals.h"

#define MAX_MESSAGE_BYTES 1024 /* of an error, as sent */
#define MIN_RETRY_MS      1000 /* some clients round less than a second down to none */
#define MAX_RETRY_MS      60000
#define BAD_REQUEST_TYPE  "type.googleapis.com/google.rpc.BadRequest"

/* What goes with the statuses of LTN_ERR_TABLE. */
struct extra {
    int rc;
    const char *http_field; /* further header; NULL: none */
    const char *http_value; /* NULL: the caller's; without one the header is left out */
    const char *grpc_field;
    const char *grpc_value;
    bool bad_request; /* google.rpc.BadRequest among the details */
    bool jitter;      /* the hint is spread, so that those told do not come back together */
};

static const struct extra extras[] = {
    {.rc = LTN_ERR_MALFORMED, .bad_request = true},
    {.rc = LTN_ERR_DEPTH, .bad_request = true},
    {.rc = LTN_ERR_COUNT, .bad_request = true},
    {.rc = LTN_ERR_UNAUTHENTICATED, .http_field = "www-authenticate", .http_value = "Bearer"},
    {.rc = LTN_ERR_METHOD, .http_field = "allow"},
    {.rc = LTN_ERR_TYPE, .http_field = "accept-post"},
    {.rc = LTN_ERR_CODING,
     .http_field = "accept-encoding",
     .http_value = LTN_HTTP_CODINGS,
     .grpc_field = "grpc-accept-encoding",
     .grpc_value = LTN_GRPC_CODINGS},
    {.rc = LTN_ERR_QUOTA, .jitter = true},
};

static const struct extra *extra_of(int rc)
{
    static const struct extra none = {0};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(extras); i++) {
        if (extras[i].rc == rc) {
            return &extras[i];
        }
    }
    return &none;
}

/* The hint in milliseconds; 0 for what must not be tried again. */
static uint32_t retry_hint(const struct ltn_http_request *rq, const struct ltn_answer *a,
                           const struct extra *x)
{
    if (!ltn_err_retryable(a->rc)) {
        return 0;
    }
    uint32_t ms = a->retry_after_ms != 0 ? a->retry_after_ms : rq->core->retry_after_s * 1000;
    if (x->jitter) {
        uint64_t mix = ((uint64_t)(uintptr_t)rq ^ rq->started_ns) * 0x9e3779b97f4a7c15ULL;
        ms += (uint32_t)((mix >> 33) % (ms / 2 + 1));
        ms = ms < MAX_RETRY_MS ? ms : MAX_RETRY_MS;
    }
    return ms > MIN_RETRY_MS ? ms : MIN_RETRY_MS;
}

static void put_details(struct ltn_json *j, const char *message)
{
    ltn_json_key(j, "details");
    ltn_json_open_array(j);
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "@type", BAD_REQUEST_TYPE);
    ltn_json_key(j, "fieldViolations");
    ltn_json_open_array(j);
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "field", "body");
    ltn_json_kv_str(j, "description", message);
    ltn_json_close_object(j);
    ltn_json_close_array(j);
    ltn_json_close_object(j);
    ltn_json_close_array(j);
}

/* google.rpc.Status as JSON. */
static int json_status(struct ltn_buf *b, int code, const char *message, bool bad_request)
{
    struct ltn_json j;
    ltn_json_init(&j, b);
    ltn_json_open_object(&j);
    ltn_json_kv_i64(&j, "code", code);
    ltn_json_kv_str(&j, "message", message);
    if (bad_request) {
        put_details(&j, message);
    }
    ltn_json_close_object(&j);
    return ltn_buf_error(b);
}

/* What the API's clients read. */
static int json_error(struct ltn_buf *b, int status, const char *message)
{
    struct ltn_json j;
    ltn_json_init(&j, b);
    ltn_json_open_object(&j);
    ltn_json_key(&j, "error");
    ltn_json_open_object(&j);
    ltn_json_kv_i64(&j, "code", status);
    ltn_json_kv_str(&j, "message", message);
    ltn_json_close_object(&j);
    ltn_json_close_object(&j);
    return ltn_buf_error(b);
}

static void answer_http(struct ltn_http_request *rq, const struct ltn_answer *a,
                        const struct extra *x, const char *text)
{
    struct ltn_buf b;
    bool proto = rq->status_body && (strcmp(rq->content_type, "application/x-protobuf") == 0 ||
                                     strcmp(rq->content_type, "application/protobuf") == 0);
    const char *value = x->http_value != NULL ? x->http_value : a->value;
    const struct ltn_http_field field = {x->http_field, value};
    int code = ltn_err_grpc(a->rc);
    int rc;
    ltn_buf_init(&b, 16 * 1024);
    if (proto) {
        rc = ltn_rpc_status_bad_request(&b, code, text, x->bad_request ? "body" : NULL);
    } else if (rq->status_body) {
        rc = json_status(&b, code, text, x->bad_request);
    } else {
        rc = json_error(&b, ltn_err_http(a->rc), text);
    }
    if (rc != 0) {
        ltn_buf_reset(&b);
    }
    struct ltn_http_response resp = {
        .status = ltn_err_http(a->rc),
        .content_type = proto ? rq->content_type : "application/json",
        .take_body = true,
        .retry_after_s = (retry_hint(rq, a, x) + 999) / 1000,
        .fields = &field,
        .field_count = field.name != NULL && field.value != NULL ? 1 : 0,
    };
    resp.body = ltn_buf_steal(&b, &resp.body_len);
    ltn_buf_done(&b);
    ltn_http_reply(rq, &resp);
}

static void answer_grpc(struct ltn_http_request *rq, const struct ltn_answer *a,
                        const struct extra *x, const char *text)
{
    const struct ltn_http_field field = {x->grpc_field, x->grpc_value};
    const struct ltn_grpc_response resp = {
        .status = ltn_err_grpc(a->rc),
        .message = text,
        .retry_after_ms = retry_hint(rq, a, x),
        .bad_request = x->bad_request ? "body" : NULL,
        .fields = &field,
        .field_count = field.name != NULL ? 1 : 0,
    };
    ltn_grpc_reply(rq, &resp);
}

void ltn_answer(struct ltn_http_request *rq, const struct ltn_answer *a)
{
    char text[MAX_MESSAGE_BYTES];
    const struct extra *x = extra_of(a->rc);
    const char *message = a->message != NULL ? a->message : ltn_err_str(a->rc);
    ltn_text_clean(text, sizeof(text), message, strlen(message));
    if (rq->grpc && !a->plain_http) {
        answer_grpc(rq, a, x, text);
    } else {
        answer_http(rq, a, x, text);
    }
}

void ltn_http_reply_error(struct ltn_http_request *req, int rc, const char *message,
                          uint32_t retry_after_ms)
{
    const struct ltn_answer a = {.rc = rc, .message = message, .retry_after_ms = retry_after_ms};
    ltn_answer(req, &a);
}
