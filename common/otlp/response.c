/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/response.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "otlp/pb_read.h"
#include "otlp/pb_write.h"
#include "otlp/write_int.h"

#define RETRY_INFO_URL "type.googleapis.com/google.rpc.RetryInfo"

/* Status > Any > RetryInfo > Duration, with one to spare. */
#define RESPONSE_DEPTH 5

/* Cut text at a character, at most LTN_OTLP_MESSAGE_MAX_BYTES. */
static struct ltn_otlp_str cut(const char *message)
{
    struct ltn_otlp_str s = ltn_otlp_str(message);
    if (s.n > LTN_OTLP_MESSAGE_MAX_BYTES) {
        s.n = LTN_OTLP_MESSAGE_MAX_BYTES;
        /* Step back over continuation bytes so that no sequence is cut in half. */
        while (s.n > 0 && ((unsigned char)s.p[s.n] & 0xc0) == 0x80) {
            s.n--;
        }
    }
    return s;
}

/* Ends an append: its error after taking it back. */
static int finish(struct ltn_buf *out, size_t start)
{
    int rc = ltn_buf_error(out);
    if (rc < 0) {
        ltn_otlp_take_back(out, start);
    }
    return rc;
}

int ltn_otlp_response_write(struct ltn_buf *out, uint64_t rejected, const char *message)
{
    struct ltn_otlp_str text = cut(message);
    if (ltn_buf_error(out) != 0) {
        return ltn_buf_error(out);
    }
    if (rejected == 0 && text.n == 0) {
        return 0;
    }
    size_t start = out->len;
    size_t mark = ltn_pb_open(out, 1);
    if (rejected > 0) {
        ltn_pb_put_u64_field(out, 1, rejected <= INT64_MAX ? rejected : INT64_MAX);
    }
    ltn_otlp_put_text_opt(out, 2, text);
    ltn_pb_close(out, mark);
    return finish(out, start);
}

static const char *rejected_member(enum ltn_otlp_signal signal)
{
    switch (signal) {
    case LTN_OTLP_METRICS:
        return "rejectedDataPoints";
    case LTN_OTLP_LOGS:
        return "rejectedLogRecords";
    case LTN_OTLP_TRACES:
        break;
    }
    return "rejectedSpans";
}

int ltn_otlp_response_json(struct ltn_buf *out, enum ltn_otlp_signal signal, uint64_t rejected,
                           const char *message)
{
    struct ltn_otlp_str text = cut(message);
    struct ltn_json j;
    if (ltn_buf_error(out) != 0) {
        return ltn_buf_error(out);
    }
    size_t start = out->len;
    ltn_json_init(&j, out);
    ltn_json_open_object(&j);
    if (rejected > 0 || text.n > 0) {
        ltn_json_key(&j, "partialSuccess");
        ltn_json_open_object(&j);
        if (rejected > 0) { /* 64-bit numbers are text in the JSON form of protobuf */
            char number[24];
            (void)snprintf(number, sizeof(number), "%" PRIu64,
                           rejected <= INT64_MAX ? rejected : (uint64_t)INT64_MAX);
            ltn_json_kv_str(&j, rejected_member(signal), number);
        }
        if (text.n > 0) {
            ltn_json_key(&j, "errorMessage");
            ltn_json_strn(&j, text.p, text.n);
        }
        ltn_json_close_object(&j);
    }
    ltn_json_close_object(&j);
    return finish(out, start);
}

static void put_retry_info(struct ltn_buf *out, uint64_t retry_ns)
{
    size_t mark = ltn_pb_open(out, 1);
    if (retry_ns >= LTN_NS_PER_S) {
        ltn_pb_put_u64_field(out, 1, retry_ns / LTN_NS_PER_S);
    }
    if (retry_ns % LTN_NS_PER_S != 0) {
        ltn_pb_put_u64_field(out, 2, retry_ns % LTN_NS_PER_S);
    }
    ltn_pb_close(out, mark);
}

int ltn_otlp_retry_info_write(struct ltn_buf *out, uint64_t retry_ns)
{
    if (ltn_buf_error(out) != 0) {
        return ltn_buf_error(out);
    }
    size_t start = out->len;
    put_retry_info(out, retry_ns);
    return finish(out, start);
}

int ltn_otlp_status_write(struct ltn_buf *out, int code, const char *message, uint64_t retry_ns)
{
    if (ltn_buf_error(out) != 0) {
        return ltn_buf_error(out);
    }
    size_t start = out->len;
    if (code != 0) {
        ltn_pb_put_u64_field(out, 1, (uint64_t)(int64_t)code);
    }
    ltn_otlp_put_text_opt(out, 2, cut(message));
    if (retry_ns > 0) {
        size_t any = ltn_pb_open(out, 3);
        ltn_pb_put_str_field(out, 1, RETRY_INFO_URL);
        size_t value = ltn_pb_open(out, 2);
        put_retry_info(out, retry_ns);
        ltn_pb_close(out, value);
        ltn_pb_close(out, any);
    }
    return finish(out, start);
}

static struct ltn_otlp_str field_str(const struct ltn_pb_field *f)
{
    return (struct ltn_otlp_str){(const char *)f->data, (size_t)f->value};
}

int ltn_otlp_response_read(const void *data, size_t n, uint64_t *ret_rejected,
                           struct ltn_otlp_str *ret_message)
{
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    int64_t rejected = 0;
    struct ltn_otlp_str message = {"", 0};
    int rc;
    ltn_pb_init(&c, data, n, RESPONSE_DEPTH);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != 1 || f.type != LTN_PB_LEN) {
            continue;
        }
        if ((rc = ltn_pb_enter(&c, &f, &sub)) < 0) {
            return rc;
        }
        while ((rc = ltn_pb_next(&sub, &f)) > 0) {
            if (f.number == 1 && f.type == LTN_PB_VARINT) {
                rejected = (int64_t)f.value;
            } else if (f.number == 2 && f.type == LTN_PB_LEN) {
                message = field_str(&f);
            }
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0) {
        return rc;
    }
    *ret_rejected = rejected > 0 ? (uint64_t)rejected : 0;
    *ret_message = message;
    return 0;
}

/* Duration in RetryInfo; negative ones count as none. */
static int read_duration(struct ltn_pb_cur c, uint64_t *ret_ns)
{
    struct ltn_pb_field f;
    int64_t seconds = 0;
    int32_t nanos = 0;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.number == 1 && f.type == LTN_PB_VARINT) {
            seconds = (int64_t)f.value;
        } else if (f.number == 2 && f.type == LTN_PB_VARINT) {
            nanos = (int32_t)f.value;
        }
    }
    if (rc < 0) {
        return rc;
    }
    if (seconds < 0 || nanos < 0 || nanos >= (int32_t)LTN_NS_PER_S) {
        *ret_ns = 0;
    } else if ((uint64_t)seconds > UINT64_MAX / LTN_NS_PER_S - 1) {
        *ret_ns = UINT64_MAX;
    } else {
        *ret_ns = (uint64_t)seconds * LTN_NS_PER_S;
        *ret_ns += (uint32_t)nanos;
    }
    return 0;
}

static int read_retry_info(struct ltn_pb_cur c, uint64_t *ret_ns)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != 1 || f.type != LTN_PB_LEN) {
            continue;
        }
        if ((rc = ltn_pb_enter(&c, &f, &sub)) < 0 || (rc = read_duration(sub, ret_ns)) < 0) {
            return rc;
        }
    }
    return rc;
}

/* One google.protobuf.Any: only RetryInfo is understood. */
static int read_detail(struct ltn_pb_cur c, uint64_t *ret_ns)
{
    struct ltn_pb_field f;
    struct ltn_pb_field value = {.number = 0};
    struct ltn_otlp_str url = {"", 0};
    struct ltn_pb_cur sub;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.number == 1 && f.type == LTN_PB_LEN) {
            url = field_str(&f);
        } else if (f.number == 2 && f.type == LTN_PB_LEN) {
            value = f;
        }
    }
    if (rc < 0 || value.number == 0 || !ltn_otlp_str_eq(url, RETRY_INFO_URL)) {
        return rc;
    }
    rc = ltn_pb_enter(&c, &value, &sub);
    return rc < 0 ? rc : read_retry_info(sub, ret_ns);
}

int ltn_otlp_status_read(const void *data, size_t n, struct ltn_otlp_status *ret)
{
    struct ltn_otlp_status status = {.message = {"", 0}};
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    int rc;
    ltn_pb_init(&c, data, n, RESPONSE_DEPTH);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number == 1 && f.type == LTN_PB_VARINT) {
            status.code = (int32_t)f.value;
        } else if (f.number == 2 && f.type == LTN_PB_LEN) {
            status.message = field_str(&f);
        } else if (f.number == 3 && f.type == LTN_PB_LEN) {
            if ((rc = ltn_pb_enter(&c, &f, &sub)) < 0 ||
                (rc = read_detail(sub, &status.retry_ns)) < 0) {
                return rc;
            }
        }
    }
    if (rc < 0) {
        return rc;
    }
    *ret = status;
    return 0;
}
