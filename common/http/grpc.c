/* SPDX-License-Identifier: Apache-2.0 */
#include "http/grpc.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define AHEAD 8 /* times what came first of a message there is room at once, not more */

void ltn_grpc_frame_init(struct ltn_grpc_frame *f, size_t max_message_bytes)
{
    memset(f, 0, sizeof(*f));
    ltn_buf_init(&f->message, max_message_bytes);
}

void ltn_grpc_frame_done(struct ltn_grpc_frame *f)
{
    ltn_buf_done(&f->message);
}

void ltn_grpc_frame_reset(struct ltn_grpc_frame *f)
{
    f->prefix_len = 0;
    f->declared = 0;
    f->compressed = false;
    ltn_buf_reset(&f->message);
}

int ltn_grpc_frame_feed(struct ltn_grpc_frame *f, const uint8_t *p, size_t n, size_t *ret_used)
{
    size_t pos = 0;
    while (pos < n && f->prefix_len < LTN_GRPC_PREFIX_BYTES) {
        f->prefix[f->prefix_len++] = p[pos++];
    }
    *ret_used = pos;
    if (f->prefix_len < LTN_GRPC_PREFIX_BYTES) {
        return 0;
    }
    if (f->prefix[0] > 1) {
        return LTN_ERR_MALFORMED;
    }
    f->compressed = f->prefix[0] == 1;
    f->declared = (uint32_t)f->prefix[1] << 24 | (uint32_t)f->prefix[2] << 16 |
                  (uint32_t)f->prefix[3] << 8 | (uint32_t)f->prefix[4];
    if (f->declared > f->message.max_bytes) {
        return LTN_ERR_TOO_LARGE;
    }
    size_t missing = f->declared - f->message.len;
    size_t part = n - pos < missing ? n - pos : missing;
    if (part > 0) {
        size_t soon = missing / AHEAD < part ? missing : part * AHEAD;
        if (f->message.data == NULL && ltn_buf_reserve(&f->message, soon) == NULL) {
            return f->message.error;
        }
        int rc = ltn_buf_append(&f->message, p + pos, part);
        if (rc != 0) {
            return rc;
        }
    }
    *ret_used = pos + part;
    return part == missing ? 1 : 0;
}

bool ltn_grpc_frame_partial(const struct ltn_grpc_frame *f)
{
    return f->prefix_len > 0 &&
           (f->prefix_len < LTN_GRPC_PREFIX_BYTES || f->message.len < f->declared);
}

void ltn_grpc_prefix(uint8_t out[LTN_GRPC_PREFIX_BYTES], bool compressed, uint32_t len)
{
    out[0] = compressed ? 1 : 0;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

static const struct {
    char unit;
    uint64_t ns;
} timeout_units[] = {
    {'n', 1},
    {'u', LTN_NS_PER_US},
    {'m', LTN_NS_PER_MS},
    {'S', LTN_NS_PER_S},
    {'M', 60 * LTN_NS_PER_S},
    {'H', 3600 * LTN_NS_PER_S},
};

#define MAX_TIMEOUT_DIGITS 8
#define MAX_TIMEOUT_VALUE  99999999

bool ltn_grpc_timeout_parse(const char *s, uint64_t *ret_ns)
{
    uint64_t value = 0;
    size_t digits = 0;
    while (s[digits] >= '0' && s[digits] <= '9') {
        if (digits == MAX_TIMEOUT_DIGITS) {
            return false;
        }
        value = value * 10 + (uint64_t)(s[digits] - '0');
        digits++;
    }
    if (digits == 0 || s[digits] == '\0' || s[digits + 1] != '\0') {
        return false;
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(timeout_units); i++) {
        if (timeout_units[i].unit == s[digits]) {
            if (__builtin_mul_overflow(value, timeout_units[i].ns, ret_ns) || *ret_ns > INT64_MAX) {
                *ret_ns = INT64_MAX;
            }
            return true;
        }
    }
    return false;
}

void ltn_grpc_timeout_format(uint64_t ns, char out[16])
{
    size_t i = 0;
    while (i + 1 < LTN_ARRAY_SIZE(timeout_units) && ns / timeout_units[i].ns > MAX_TIMEOUT_VALUE) {
        i++;
    }
    uint64_t value = ns / timeout_units[i].ns;
    if (value > MAX_TIMEOUT_VALUE) {
        value = MAX_TIMEOUT_VALUE;
    }
    (void)snprintf(out, 16, "%u%c", (unsigned)value, timeout_units[i].unit);
}

int ltn_grpc_message_encode(struct ltn_buf *out, const char *text, size_t max)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t start = out->len;
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (out->len - start + 3 > max) {
            break;
        }
        if (c >= 0x20 && c <= 0x7e && c != '%') {
            (void)ltn_buf_putc(out, (char)c);
        } else {
            char escaped[3] = {'%', hex[c >> 4], hex[c & 15]};
            (void)ltn_buf_append(out, escaped, sizeof(escaped));
        }
    }
    return ltn_buf_error(out);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

int ltn_grpc_message_decode(struct ltn_buf *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '%' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0) {
            (void)ltn_buf_putc(out, (char)(hex_value(p[1]) * 16 + hex_value(p[2])));
            p += 2;
        } else {
            (void)ltn_buf_putc(out, *p);
        }
    }
    return ltn_buf_error(out);
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int ltn_base64_encode(struct ltn_buf *out, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t group = (uint32_t)p[i] << 16;
        group |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        group |= left > 2 ? (uint32_t)p[i + 2] : 0;
        for (size_t k = 0; k <= left; k++) {
            (void)ltn_buf_putc(out, base64_digits[(group >> (18 - 6 * k)) & 63]);
        }
    }
    return ltn_buf_error(out);
}

int ltn_base64_decode(struct ltn_buf *out, const char *s, size_t n)
{
    uint32_t group = 0;
    unsigned bits = 0;
    while (n > 0 && s[n - 1] == '=') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        const char *at = s[i] == '\0' ? NULL : strchr(base64_digits, s[i]);
        if (at == NULL) {
            return LTN_ERR_MALFORMED;
        }
        group = (group << 6 | (uint32_t)(at - base64_digits)) & 0xffffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            int rc = ltn_buf_putc(out, (char)(group >> bits & 0xff));
            if (rc != 0) {
                return rc;
            }
        }
    }
    return bits >= 6 ? LTN_ERR_MALFORMED : 0;
}

/* ---- the few protobuf messages of google.rpc ---- */

static void put_varint(struct ltn_buf *b, uint64_t v)
{
    while (v >= 0x80) {
        (void)ltn_buf_putc(b, (char)(v | 0x80));
        v >>= 7;
    }
    (void)ltn_buf_putc(b, (char)v);
}

static void put_bytes(struct ltn_buf *b, uint32_t field, const void *p, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    (void)ltn_buf_append(b, p, n);
}

static void put_uint(struct ltn_buf *b, uint32_t field, uint64_t v)
{
    if (v != 0) {
        put_varint(b, (uint64_t)field << 3);
        put_varint(b, v);
    }
}

#define RETRY_TYPE       "type.googleapis.com/google.rpc.RetryInfo"
#define BAD_REQUEST_TYPE "type.googleapis.com/google.rpc.BadRequest"
#define MAX_RETRY_BYTES  64
#define MAX_ANY_BYTES    4096

int ltn_rpc_retry_info(struct ltn_buf *out, uint32_t retry_ms)
{
    struct ltn_buf duration; /* google.protobuf.Duration {1 seconds, 2 nanos} */
    ltn_buf_init(&duration, MAX_RETRY_BYTES);
    put_uint(&duration, 1, retry_ms / 1000);
    put_uint(&duration, 2, (uint64_t)(retry_ms % 1000) * LTN_NS_PER_MS);
    put_bytes(out, 1, ltn_buf_str(&duration), duration.len);
    int rc = ltn_buf_error(&duration);
    ltn_buf_done(&duration);
    return rc != 0 ? rc : ltn_buf_error(out);
}

/* google.rpc.Status {1 code, 2 message, 3 details: google.protobuf.Any {1 type_url, 2 value}} */
static int put_status(struct ltn_buf *out, int code, const char *message)
{
    put_uint(out, 1, (uint64_t)code);
    if (message[0] != '\0') {
        put_bytes(out, 2, message, strlen(message));
    }
    return ltn_buf_error(out);
}

static int put_detail(struct ltn_buf *out, const char *type, const struct ltn_buf *value)
{
    struct ltn_buf any;
    ltn_buf_init(&any, MAX_ANY_BYTES);
    put_bytes(&any, 1, type, strlen(type));
    put_bytes(&any, 2, ltn_buf_str(value), value->len);
    put_bytes(out, 3, ltn_buf_str(&any), any.len);
    int rc = ltn_buf_error(value) != 0 ? ltn_buf_error(value) : ltn_buf_error(&any);
    ltn_buf_done(&any);
    return rc != 0 ? rc : ltn_buf_error(out);
}

int ltn_rpc_status(struct ltn_buf *out, int code, const char *message, uint32_t retry_ms)
{
    struct ltn_buf info;
    int rc = put_status(out, code, message);
    if (rc != 0 || retry_ms == 0) {
        return rc;
    }
    ltn_buf_init(&info, MAX_RETRY_BYTES);
    (void)ltn_rpc_retry_info(&info, retry_ms);
    rc = put_detail(out, RETRY_TYPE, &info);
    ltn_buf_done(&info);
    return rc;
}

static int encode(struct ltn_buf *text, const struct ltn_buf *bytes)
{
    return ltn_base64_encode(text, (const uint8_t *)ltn_buf_str(bytes), bytes->len);
}

int ltn_grpc_hint(struct ltn_buf *details, struct ltn_buf *retry, int status, const char *message,
                  uint32_t retry_ms)
{
    struct ltn_buf bytes;
    ltn_buf_init(&bytes, MAX_ANY_BYTES);
    int rc = ltn_rpc_status(&bytes, status, message, retry_ms);
    if (rc == 0) {
        rc = encode(details, &bytes);
    }
    ltn_buf_reset(&bytes);
    if (rc == 0) {
        rc = ltn_rpc_retry_info(&bytes, retry_ms);
    }
    if (rc == 0) {
        rc = encode(retry, &bytes);
    }
    ltn_buf_done(&bytes);
    return rc;
}

int ltn_rpc_status_bad_request(struct ltn_buf *out, int code, const char *message,
                               const char *field)
{
    struct ltn_buf violation; /* FieldViolation {1 field, 2 description} */
    struct ltn_buf detail;    /* BadRequest {1 field_violations} */
    int rc = put_status(out, code, message);
    if (rc != 0 || field == NULL) {
        return rc;
    }
    ltn_buf_init(&violation, MAX_ANY_BYTES);
    ltn_buf_init(&detail, MAX_ANY_BYTES);
    put_bytes(&violation, 1, field, strlen(field));
    put_bytes(&violation, 2, message, strlen(message));
    put_bytes(&detail, 1, ltn_buf_str(&violation), violation.len);
    rc = ltn_buf_error(&violation) != 0 ? ltn_buf_error(&violation)
                                        : put_detail(out, BAD_REQUEST_TYPE, &detail);
    ltn_buf_done(&violation);
    ltn_buf_done(&detail);
    return rc;
}

struct cursor {
    const uint8_t *p;
    const uint8_t *end;
};

static bool get_varint(struct cursor *c, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->p == c->end) {
            return false;
        }
        uint8_t byte = *c->p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret = v;
            return true;
        }
    }
    return false;
}

struct field {
    uint32_t number;
    uint64_t value;   /* varint */
    const uint8_t *p; /* length-delimited, else NULL */
    size_t n;
};

/* Next field; false at the end or when broken. Groups count as broken. */
static bool next_field(struct cursor *c, struct field *f)
{
    uint64_t tag;
    uint64_t len = 0;
    if (!get_varint(c, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) {
        return false;
    }
    *f = (struct field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case 0:
        return get_varint(c, &f->value);
    case 1:
        len = 8;
        break;
    case 2:
        if (!get_varint(c, &len)) {
            return false;
        }
        break;
    case 5:
        len = 4;
        break;
    default:
        return false;
    }
    if (len > (size_t)(c->end - c->p)) {
        return false;
    }
    if ((tag & 7) == 2) {
        f->p = c->p;
        f->n = (size_t)len;
    }
    c->p += len;
    return true;
}

bool ltn_pb_find_bytes(const uint8_t *p, size_t n, uint32_t field, const uint8_t **ret_p,
                       size_t *ret_n)
{
    struct cursor c = {p, p + n};
    struct field f;
    while (next_field(&c, &f)) {
        if (f.number == field && f.p != NULL) {
            *ret_p = f.p;
            *ret_n = f.n;
            return true;
        }
    }
    return false;
}

bool ltn_rpc_retry_info_parse(const uint8_t *p, size_t n, uint64_t *ret_ns)
{
    const uint8_t *duration;
    size_t len;
    if (!ltn_pb_find_bytes(p, n, 1, &duration, &len)) {
        return false;
    }
    struct cursor c = {duration, duration + len};
    struct field f;
    uint64_t seconds = 0;
    uint64_t nanos = 0;
    while (next_field(&c, &f)) {
        if (f.number == 1 && f.p == NULL) {
            seconds = f.value;
        } else if (f.number == 2 && f.p == NULL) {
            nanos = f.value;
        }
    }
    /* Negative values come as huge ones: no delay that anybody meant. */
    if (seconds > UINT32_MAX || nanos >= LTN_NS_PER_S) {
        return false;
    }
    *ret_ns = seconds * LTN_NS_PER_S + nanos;
    return true;
}

bool ltn_rpc_status_retry_parse(const uint8_t *p, size_t n, uint64_t *ret_ns)
{
    struct cursor c = {p, p + n};
    struct field f;
    while (next_field(&c, &f)) {
        const uint8_t *type;
        const uint8_t *value;
        size_t type_len;
        size_t value_len;
        if (f.number == 3 && f.p != NULL && ltn_pb_find_bytes(f.p, f.n, 1, &type, &type_len) &&
            type_len == strlen(RETRY_TYPE) && memcmp(type, RETRY_TYPE, type_len) == 0 &&
            ltn_pb_find_bytes(f.p, f.n, 2, &value, &value_len)) {
            return ltn_rpc_retry_info_parse(value, value_len, ret_ns);
        }
    }
    return false;
}

bool ltn_grpc_is_type(const char *type)
{
    static const char name[] = "application/grpc";
    size_t n = sizeof(name) - 1;
    return strncmp(type, name, n) == 0 && (type[n] == '\0' || type[n] == '+');
}
