/* SPDX-License-Identifier: Apache-2.0 */
/* Histogram states as bytes: a version, the kind and flags, then fixed 64-bit words, little end
 * first. Counts that are zero are the most: runs of them are written as their length. */
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prom/hist_int.h"
#include "stats/exphist.h"

#define VERSION 1

#define FLAG_SUM  1
#define FLAG_BARE 2

static void put_word(struct ltn_buf *out, uint64_t v)
{
    uint64_t le = htole64(v);
    (void)ltn_buf_append(out, &le, sizeof(le));
}

static uint64_t bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof(u));
    return u;
}

static double number(uint64_t u)
{
    double v;
    memcpy(&v, &u, sizeof(v));
    return v;
}

static uint64_t pair(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

int ltn_hist_save(const struct ltn_hist *h, struct ltn_buf *out)
{
    size_t words = ltn_hist_words(h);
    const uint8_t head[4] = {VERSION, h->kind,
                             (uint8_t)((h->has_sum ? FLAG_SUM : 0) | (h->bare ? FLAG_BARE : 0)), 0};
    if (!h->used)
        return -EINVAL;
    (void)ltn_buf_append(out, head, sizeof(head));
    put_word(out, h->count);
    put_word(out, bits(h->sum));
    put_word(out, h->start_ns);
    put_word(out, h->time_ns);
    put_word(out, h->zero_count);
    put_word(out, bits(h->zero_threshold));
    put_word(out, pair((uint32_t)h->scale, 0));
    put_word(out, pair((uint32_t)h->offset[0], (uint32_t)h->offset[1]));
    put_word(out, pair(h->n[0], h->n[1]));
    for (size_t i = 0; i < words;) {
        put_word(out, h->data[i]);
        if (h->data[i++] != 0)
            continue;
        size_t zeros = 0;
        while (i < words && h->data[i] == 0 && zeros < UINT16_MAX) {
            zeros++;
            i++;
        }
        uint16_t le = htole16((uint16_t)zeros);
        (void)ltn_buf_append(out, &le, sizeof(le));
    }
    return ltn_buf_error(out);
}

struct reader {
    const uint8_t *p;
    size_t left;
    bool failed;
};

static void take(struct reader *r, void *to, size_t n)
{
    if (r->left < n) {
        r->failed = true;
        memset(to, 0, n);
        return;
    }
    memcpy(to, r->p, n);
    r->p += n;
    r->left -= n;
}

static uint64_t take_word(struct reader *r)
{
    uint64_t le;
    take(r, &le, sizeof(le));
    return le64toh(le);
}

static void take_head(struct reader *r, struct ltn_hist *h)
{
    uint8_t head[4];
    take(r, head, sizeof(head));
    r->failed = r->failed || head[0] != VERSION || head[1] > LTN_HIST_SUMMARY;
    h->kind = head[1];
    h->has_sum = (head[2] & FLAG_SUM) != 0;
    h->bare = (head[2] & FLAG_BARE) != 0;
    h->used = true;
    h->count = take_word(r);
    h->sum = number(take_word(r));
    h->start_ns = take_word(r);
    h->time_ns = take_word(r);
    h->zero_count = take_word(r);
    h->zero_threshold = number(take_word(r));
    h->scale = (int32_t)(uint32_t)take_word(r);
    uint64_t two = take_word(r);
    h->offset[0] = (int32_t)(uint32_t)two;
    h->offset[1] = (int32_t)(uint32_t)(two >> 32);
    two = take_word(r);
    h->n[0] = (uint32_t)two;
    h->n[1] = (uint32_t)(two >> 32);
}

/* As strict as ltn_hist_set: what is kept on a disk may have been changed there. */
static bool head_ok(const struct ltn_hist *h)
{
    switch (h->kind) {
    case LTN_HIST_EXPLICIT:
        return h->n[0] <= LTN_HIST_BOUNDS_MAX && h->n[1] == 0 && (!h->bare || h->n[0] == 0);
    case LTN_HIST_SUMMARY:
        return h->n[0] <= LTN_HIST_QUANTILES_MAX && h->n[1] == 0;
    default:
        return h->n[0] <= LTN_HIST_BUCKETS && h->n[1] <= LTN_HIST_BUCKETS &&
               ltn_exphist_run_ok(h->scale, h->offset[0], h->n[0]) &&
               ltn_exphist_run_ok(h->scale, h->offset[1], h->n[1]) && h->zero_threshold >= 0 &&
               isfinite(h->zero_threshold);
    }
}

static void take_data(struct reader *r, struct ltn_hist *h, size_t words)
{
    for (size_t i = 0; i < words && !r->failed;) {
        uint16_t zeros;
        h->data[i] = take_word(r);
        if (h->data[i++] != 0)
            continue;
        take(r, &zeros, sizeof(zeros));
        if (le16toh(zeros) > words - i)
            r->failed = true;
        else
            i += le16toh(zeros); /* they are zero already */
    }
}

static bool ascending(const struct ltn_hist *h)
{
    size_t step = h->kind == LTN_HIST_SUMMARY ? 2 : 1;
    const double *v = ltn_hist_bounds(h);
    for (size_t i = 0; h->kind != LTN_HIST_EXPONENTIAL && i < h->n[0]; i++)
        if (isnan(v[i * step]) || (i > 0 && !(v[(i - 1) * step] < v[i * step])))
            return false;
    return true;
}

struct ltn_hist *ltn_hist_load(const void *data, size_t n)
{
    struct reader r = {data, n, false};
    struct ltn_hist *h = ltn_hist_new();
    if (h == NULL)
        return NULL;
    take_head(&r, h);
    if (!r.failed && head_ok(h)) {
        size_t words = h->kind == LTN_HIST_EXPONENTIAL ? (size_t)h->n[0] + h->n[1] + 1
                                                       : 2 * (size_t)h->n[0] + 1;
        h->data = calloc(words, sizeof(*h->data));
        if (h->data != NULL) {
            take_data(&r, h, words);
            if (!r.failed && r.left == 0 && ascending(h))
                return h;
        }
    }
    ltn_hist_free(h);
    return NULL;
}
