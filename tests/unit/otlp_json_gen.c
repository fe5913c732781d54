/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp_json_gen.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"
#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb-c.h"

#define FIELDS_MAX 24

struct writer {
    struct otlp_rng *r;
    struct ltn_buf *out;
    bool wild;
    bool comma; /* something stands before */
};

static bool chance(const struct writer *w, unsigned percent)
{
    return w->wild && otlp_rng_below(w->r, 100) < percent;
}

static void put(struct writer *w, const char *text)
{
    (void)ltn_buf_puts(w->out, text);
}

static void space(struct writer *w)
{
    static const char *const some[] = {" ", "\n", "\t", "\r\n  "};
    if (chance(w, 5)) {
        put(w, some[otlp_rng_below(w->r, 4)]);
    }
}

static void open(struct writer *w, const char *bracket)
{
    put(w, bracket);
    w->comma = false;
    space(w);
}

static void shut(struct writer *w, const char *bracket)
{
    space(w);
    put(w, bracket);
    w->comma = true;
    space(w);
}

static void next(struct writer *w)
{
    if (w->comma) {
        put(w, ",");
    }
    w->comma = false;
    space(w);
}

static void text_char(struct writer *w, unsigned char c)
{
    if (c < 0x20 || (c < 0x80 && chance(w, 3))) {
        (void)ltn_buf_printf(w->out, otlp_rng_below(w->r, 2) ? "\\u%04x" : "\\u%04X", c);
    } else if (c == '"' || c == '\\' || (c == '/' && chance(w, 50))) {
        (void)ltn_buf_printf(w->out, "\\%c", c);
    } else {
        (void)ltn_buf_putc(w->out, (char)c);
    }
}

static void text(struct writer *w, const char *s, size_t n)
{
    put(w, "\"");
    for (size_t i = 0; i < n; i++) {
        text_char(w, (unsigned char)s[i]);
    }
    put(w, "\"");
}

static void base64(struct writer *w, const uint8_t *p, size_t n)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *digits = chance(w, 50) ? url : plain;
    bool pad = !chance(w, 50);
    put(w, "\"");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        v |= i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0;
        v |= i + 2 < n ? p[i + 2] : 0;
        for (unsigned k = 0; k < 4; k++) {
            if (k <= n - i) {
                text_char(w, (unsigned char)digits[v >> (18 - 6 * k) & 63]);
            } else if (pad) {
                put(w, "=");
            }
        }
    }
    put(w, "\"");
}

static void hex(struct writer *w, const uint8_t *p, size_t n)
{
    put(w, "\"");
    for (size_t i = 0; i < n; i++) {
        (void)ltn_buf_printf(w->out, chance(w, 50) ? "%02X" : "%02x", p[i]);
    }
    put(w, "\"");
}

static void real(struct writer *w, double v)
{
    const char *quote = chance(w, 20) ? "\"" : "";
    if (isnan(v)) {
        put(w, "\"NaN\"");
    } else if (isinf(v)) {
        put(w, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    } else {
        (void)ltn_buf_printf(w->out, chance(w, 30) ? "%s%.17e%s" : "%s%.17g%s", quote, v, quote);
    }
}

/* enums and 32-bit numbers are written bare unless quoted. */
static void whole(struct writer *w, bool negative, uint64_t magnitude, bool quoted)
{
    static const char *const ends[] = {"", ".0", ".000", "e0", "E+00", "e-0"};
    const char *end = chance(w, 20) ? ends[otlp_rng_below(w->r, 6)] : "";
    const char *quote = quoted ? "\"" : "";
    if (magnitude % 1000 == 0 && chance(w, 50)) {
        magnitude /= 1000;
        end = "e3";
    }
    (void)ltn_buf_printf(w->out, "%s%s%" PRIu64 "%s%s", quote, negative ? "-" : "", magnitude, end,
                         quote);
}

static void message(struct writer *w, const ProtobufCMessage *m);

/* The member of a field at p. Recursion is as deep as the generator nests. */
static void value(struct writer *w, const ProtobufCFieldDescriptor *f, const void *p)
{
    bool quoted = otlp_rng_below(w->r, 4) != 0;
    const ProtobufCBinaryData *bytes = p;
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    switch (f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        message(w, *(ProtobufCMessage *const *)p);
        break;
    case PROTOBUF_C_TYPE_STRING:
        text(w, *(char *const *)p, strlen(*(char *const *)p));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        if (strstr(f->name, "_id") != NULL) {
            hex(w, bytes->data, bytes->len);
        } else {
            base64(w, bytes->data, bytes->len);
        }
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        real(w, *(const double *)p);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        put(w, *(const protobuf_c_boolean *)p ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        memcpy(&u64, p, 8);
        whole(w, false, u64, quoted);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        memcpy(&u64, p, 8);
        whole(w, u64 >> 63 != 0, u64 >> 63 != 0 ? 0 - u64 : u64, quoted);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        memcpy(&u32, p, 4);
        whole(w, false, u32, chance(w, 10));
        break;
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT32:
        memcpy(&u32, p, 4);
        whole(w, u32 >> 31 != 0, u32 >> 31 != 0 ? 0 - u32 : u32,
              f->type != PROTOBUF_C_TYPE_ENUM && chance(w, 10));
        break;
    default:
        abort(); /* OTLP has no other */
    }
    w->comma = true;
}

static void name(struct writer *w, const char *snake)
{
    char camel[64];
    size_t n = 0;
    for (; *snake != '\0' && n + 1 < sizeof(camel); snake++) {
        if (*snake == '_') {
            snake++;
            camel[n++] = (char)(*snake - 'a' + 'A');
        } else {
            camel[n++] = *snake;
        }
    }
    text(w, camel, n);
    space(w);
    put(w, ":");
    space(w);
}

static void unknown(struct writer *w)
{
    static const char *const some[] = {
        "\"resource_metrics\":[]",
        "\"futureThing\":{\"a\":[1,2,{\"b\":null}],\"c\":\"\\\"]}\"}",
        "\"\":0",
        "\"n\\u0061me\\u0000\":-1.5e-7",
        "\"x\":[[[[]]],{},true,false,\"\\ud800\"]",
        "\"instrumentationLibrary\":{\"name\":\"old\"}",
    };
    next(w);
    put(w, some[otlp_rng_below(w->r, 6)]);
    w->comma = true;
}

static size_t element_bytes(const ProtobufCFieldDescriptor *f)
{
    return f->type == PROTOBUF_C_TYPE_MESSAGE ? sizeof(void *) : 8; /* the others are 64 bits */
}

static void list(struct writer *w, const ProtobufCFieldDescriptor *f, const uint8_t *items,
                 size_t from, size_t to)
{
    next(w);
    name(w, f->name);
    open(w, "[");
    for (size_t i = from; i < to; i++) {
        next(w);
        value(w, f, items + i * element_bytes(f));
    }
    shut(w, "]");
}

/* What a scalar may be before its last value counts. */
static void older(struct writer *w, const ProtobufCFieldDescriptor *f)
{
    uint64_t zero[2] = {7, 0};
    const char *s = "older";
    const void *p = f->type == PROTOBUF_C_TYPE_STRING ? (const void *)&s : zero;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_BYTES) {
        return;
    }
    next(w);
    name(w, f->name);
    value(w, f, p);
}

static void member(struct writer *w, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const uint8_t *base = (const uint8_t *)m;
    const void *p = base + f->offset;
    if (chance(w, 5)) {
        unknown(w);
    }
    if (chance(w, 5)) {
        next(w);
        name(w, f->name);
        put(w, "null");
        w->comma = true;
    }
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n;
        memcpy(&n, base + f->quantifier_offset, sizeof(n));
        size_t cut = chance(w, 20) ? otlp_rng_below(w->r, n + 1) : n;
        const uint8_t *items = *(uint8_t *const *)p;
        list(w, f, items, 0, cut);
        if (cut < n) {
            list(w, f, items, cut, n);
        }
        return;
    }
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        uint32_t which;
        memcpy(&which, base + f->quantifier_offset, sizeof(which));
        if (which != f->id) {
            return;
        }
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage *const *)p == NULL) {
        return;
    }
    if (chance(w, 8)) {
        older(w, f);
    }
    next(w);
    name(w, f->name);
    value(w, f, p);
}

static void message(struct writer *w, const ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    unsigned order[FIELDS_MAX];
    if (d->n_fields > FIELDS_MAX) {
        abort();
    }
    for (unsigned i = 0; i < d->n_fields; i++) {
        order[i] = i;
    }
    for (unsigned i = d->n_fields; w->wild && i > 1; i--) {
        unsigned j = (unsigned)otlp_rng_below(w->r, i);
        unsigned t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
    open(w, "{");
    for (unsigned i = 0; i < d->n_fields; i++) {
        member(w, m, &d->fields[order[i]]);
    }
    shut(w, "}");
}

void otlp_json_write(struct otlp_rng *r, bool logs, const struct ltn_buf *in, bool wild,
                     struct ltn_buf *out)
{
    const ProtobufCMessageDescriptor *d =
        logs
            ? &opentelemetry__proto__collector__logs__v1__export_logs_service_request__descriptor
            : &opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__descriptor;
    ProtobufCMessage *m =
        protobuf_c_message_unpack(d, NULL, in->len, (const uint8_t *)ltn_buf_str(in));
    struct writer w = {.r = r, .out = out, .wild = wild};
    if (m == NULL) {
        abort();
    }
    if (chance(&w, 10)) {
        put(&w, "\xef\xbb\xbf");
    }
    space(&w);
    message(&w, m);
    protobuf_c_message_free_unpacked(m, NULL);
}
