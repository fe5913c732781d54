/* SPDX-License-Identifier: Apache-2.0 */
#include "load_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

#include "base/attr.h"
#include "base/buf.h"
#include "load_shape.h"

#define GRPC_PREFIX     5
#define TIME_DIGITS     19
#define VALUE_DIGITS    10
#define VALUE_BASE      1000000000u
#define VALUE_STEP      16u
#define WINDOW_NS       10000000000u
#define ROUND_NS        1000 /* compressed rounds lie so far apart */
#define DEFLATE_LEVEL   1
#define ZSTD_LEVEL      1
#define GZIP_WINDOW     (15 + 16)
#define DEFLATE_MEMORY  8
#define BODY_MAX_BYTES  ((size_t)16 << 20)
#define MAX_FIELD_BYTES TIME_DIGITS

void load_fail(const char *what)
{
    (void)fprintf(stderr, "ingest_load: %s\n", what);
    exit(1);
}

static void *grab(size_t n)
{
    void *p = malloc(n != 0 ? n : 1);
    if (p == NULL)
        load_fail("out of memory");
    return p;
}

uint64_t load_value(uint64_t round, size_t patch)
{
    return VALUE_BASE + round * VALUE_STEP + patch % VALUE_STEP;
}

static void put_digits(uint8_t *dst, size_t n, uint64_t v)
{
    while (n > 0) {
        dst[--n] = (uint8_t)('0' + v % 10);
        v /= 10;
    }
}

static size_t field_bytes(bool json, enum load_field f)
{
    if (!json)
        return sizeof(uint64_t);
    return f == LOAD_TIME ? TIME_DIGITS : VALUE_DIGITS;
}

void load_body_patch(const struct load_set *s, const struct load_body *b, uint8_t *dst, size_t from,
                     size_t to, size_t *patch, uint64_t time_ns, uint64_t round)
{
    uint8_t time_text[TIME_DIGITS];
    uint64_t start_ns = time_ns - WINDOW_NS;
    size_t i = *patch;
    if (s->json)
        put_digits(time_text, sizeof(time_text), time_ns);
    for (; i < b->patch_count && b->patches[i].at < to; i++) {
        uint8_t *at = dst + (b->patches[i].at - from);
        uint64_t v = load_value(round, i);
        if (b->patches[i].field == LOAD_TIME) {
            if (s->json)
                memcpy(at, time_text, sizeof(time_text));
            else
                memcpy(at, &time_ns, sizeof(time_ns));
        } else if (b->patches[i].field == LOAD_START) {
            memcpy(at, &start_ns, sizeof(start_ns));
        } else if (s->json) {
            put_digits(at, VALUE_DIGITS, v);
        } else if (b->patches[i].field == LOAD_INT) {
            memcpy(at, &v, sizeof(v));
        } else {
            double d = (double)v + 0.5;
            memcpy(at, &d, sizeof(d));
        }
    }
    *patch = i;
}

/* ---- finding the fields ---- */

struct mark {
    char bytes[MAX_FIELD_BYTES + 1];
    size_t n;
};

static int make_marks(bool json, struct mark m[LOAD_FIELDS])
{
    static const uint64_t marks[] = {LOAD_MARK_TIME, LOAD_MARK_INT, LOAD_MARK_START};
    double d = LOAD_MARK_DOUBLE;
    if (json) {
        (void)snprintf(m[0].bytes, sizeof(m[0].bytes), "%s", LOAD_MARK_TIME_TEXT);
        (void)snprintf(m[1].bytes, sizeof(m[1].bytes), "%s", LOAD_MARK_INT_TEXT);
        (void)snprintf(m[2].bytes, sizeof(m[2].bytes), "%s", LOAD_MARK_DOUBLE_TEXT);
    } else {
        memcpy(m[0].bytes, &marks[0], sizeof(marks[0]));
        memcpy(m[1].bytes, &marks[1], sizeof(marks[1]));
        memcpy(m[2].bytes, &d, sizeof(d));
        memcpy(m[3].bytes, &marks[2], sizeof(marks[2]));
    }
    for (int f = 0; f < LOAD_FIELDS; f++)
        m[f].n = field_bytes(json, (enum load_field)f);
    return json ? LOAD_START : LOAD_FIELDS;
}

static void find_fields(struct load_body *b, bool json)
{
    struct mark m[LOAD_FIELDS] = {{"", 0}};
    size_t room = 0;
    int kinds = make_marks(json, m);
    for (size_t at = 0; at < b->len; at++) {
        for (int f = 0; f < kinds; f++) {
            if (b->len - at < m[f].n || memcmp(b->data + at, m[f].bytes, m[f].n) != 0)
                continue;
            if (b->patch_count == room) {
                room = room != 0 ? 2 * room : 4;
                b->patches = realloc(b->patches, room * sizeof(*b->patches));
                if (b->patches == NULL)
                    load_fail("out of memory");
            }
            b->patches[b->patch_count++] = (struct load_patch){(uint32_t)at, (enum load_field)f};
            at += m[f].n - 1;
            break;
        }
    }
}

size_t load_body_piece(const struct load_set *s, const struct load_body *b, size_t from,
                       size_t room, size_t patch)
{
    size_t end = b->len - from > room ? from + room : b->len;
    while (patch < b->patch_count &&
           b->patches[patch].at + field_bytes(s->json, b->patches[patch].field) <= end)
        patch++;
    return patch < b->patch_count && b->patches[patch].at < end ? b->patches[patch].at : end;
}

/* ---- compression ---- */

static size_t compress_into(enum load_coding coding, uint8_t *dst, size_t room, const uint8_t *src,
                            size_t n)
{
    if (coding == LOAD_ZSTD) {
        size_t k = ZSTD_compress(dst, room, src, n, ZSTD_LEVEL);
        if (ZSTD_isError(k))
            load_fail("zstd");
        return k;
    }
    static z_stream z;
    static bool ready;
    if (!ready && deflateInit2(&z, DEFLATE_LEVEL, Z_DEFLATED, GZIP_WINDOW, DEFLATE_MEMORY,
                               Z_DEFAULT_STRATEGY) != Z_OK)
        load_fail("deflate");
    ready = true;
    (void)deflateReset(&z);
    z.next_in = (uint8_t *)(uintptr_t)src;
    z.avail_in = (uInt)n;
    z.next_out = dst;
    z.avail_out = (uInt)room;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END)
        load_fail("deflate");
    return room - z.avail_out;
}

static void put_prefix(uint8_t *p, bool compressed, size_t n)
{
    p[0] = compressed ? 1 : 0;
    p[1] = (uint8_t)(n >> 24);
    p[2] = (uint8_t)(n >> 16);
    p[3] = (uint8_t)(n >> 8);
    p[4] = (uint8_t)n;
}

/* A body of the round, compressed, from a plain one. */
static void compressed_body(const struct load_set *s, const struct load_set_conf *conf,
                            const struct load_body *plain, uint64_t time_ns, uint64_t round,
                            struct load_body *ret)
{
    static uint8_t packed[BODY_MAX_BYTES];
    static uint8_t copy[BODY_MAX_BYTES];
    size_t prefix = conf->grpc ? GRPC_PREFIX : 0, patch = 0;
    size_t n = plain->len - prefix;
    if (n > sizeof(copy))
        load_fail("request too large");
    memcpy(copy, plain->data + prefix, n);
    load_body_patch(s, plain, copy, prefix, plain->len, &patch, time_ns, round);
    size_t k = compress_into(conf->coding, packed, sizeof(packed), copy, n);
    *ret = (struct load_body){.data = grab(k + prefix), .len = k + prefix, .points = plain->points};
    memcpy(ret->data + prefix, packed, k);
    if (conf->grpc)
        put_prefix(ret->data, true, k);
}

/* ---- sets ---- */

static void plain_body(const struct load_set_conf *conf, uint32_t index, struct load_body *ret)
{
    struct ltn_buf b;
    *ret = (struct load_body){.points = 0};
    ltn_buf_init(&b, BODY_MAX_BYTES);
    if (conf->grpc && ltn_buf_append(&b, "\0\0\0\0", GRPC_PREFIX) != 0)
        load_fail("out of memory");
    if (conf->shape == LOAD_AGENT)
        ret->points = load_shape_agent(&b, index);
    else if (conf->json)
        ret->points = load_shape_json(&b, index, conf->points, conf->series);
    else
        ret->points = load_shape_series(&b, index, conf->points, conf->series);
    if (ltn_buf_error(&b) != 0)
        load_fail("request too large");
    ret->data = grab(b.len);
    ret->len = b.len;
    memcpy(ret->data, b.data, b.len);
    ltn_buf_done(&b);
    if (conf->grpc)
        put_prefix(ret->data, false, ret->len - GRPC_PREFIX);
    find_fields(ret, conf->json);
}

static void body_done(struct load_body *b)
{
    free(b->data);
    free(b->patches);
}

static uint64_t now_unix_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void compress_all(struct load_set *s, const struct load_set_conf *conf)
{
    struct load_body *plain = s->bodies;
    uint64_t began_ns = now_unix_ns();
    s->count = s->per_round * conf->rounds;
    s->bodies = grab(s->count * sizeof(*s->bodies));
    for (uint32_t round = 0; round < conf->rounds; round++)
        for (size_t i = 0; i < s->per_round; i++)
            compressed_body(s, conf, &plain[i], began_ns + (uint64_t)round * ROUND_NS, round,
                            &s->bodies[round * s->per_round + i]);
    for (size_t i = 0; i < s->per_round; i++)
        body_done(&plain[i]);
    free(plain);
    s->once = true;
}

void load_set_init(struct load_set *s, const struct load_set_conf *conf)
{
    uint32_t points = conf->shape == LOAD_AGENT ? load_shape_agent_series() : conf->points;
    if (points == 0 || conf->series == 0)
        load_fail("no points");
    *s = (struct load_set){.json = conf->json};
    s->per_round = s->count = (conf->series + points - 1) / points;
    s->bodies = grab(s->count * sizeof(*s->bodies));
    double bytes = 0, total = 0;
    for (size_t i = 0; i < s->count; i++) {
        plain_body(conf, (uint32_t)i, &s->bodies[i]);
        bytes += (double)s->bodies[i].len - (conf->grpc ? GRPC_PREFIX : 0);
        total += s->bodies[i].points;
    }
    s->series = (uint64_t)total;
    s->plain_bytes = s->wire_bytes = bytes / total;
    if (conf->coding == LOAD_IDENTITY)
        return;
    compress_all(s, conf);
    bytes = 0;
    for (size_t i = 0; i < s->count; i++)
        bytes += (double)s->bodies[i].len;
    s->wire_bytes = bytes / (total * conf->rounds);
}

void load_set_done(struct load_set *s)
{
    for (size_t i = 0; i < s->count; i++)
        body_done(&s->bodies[i]);
    free(s->bodies);
}
