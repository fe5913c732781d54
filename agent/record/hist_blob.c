/* SPDX-License-Identifier: Apache-2.0 */
#include "record/hist_blob.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "stats/exphist.h"

#define BLOB_VERSION 1
/* Version, and two numbers of at most 10 bytes per bucket. */
#define BLOB_MAX_BYTES (1 + LTN_KHIST_BUCKETS * 20)

static size_t put_number(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    while (v >= 0x80) {
        out[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    out[n++] = (uint8_t)v;
    return n;
}

static int put_bucket(struct ltn_buf *out, size_t *last, size_t index, uint64_t count)
{
    uint8_t bytes[20];
    int rc = 0;
    if (count == 0) {
        return 0;
    }
    if (*last == SIZE_MAX) {
        rc = ltn_buf_putc(out, BLOB_VERSION);
        *last = 0;
    }
    size_t n = put_number(bytes, index - *last);
    n += put_number(bytes + n, count);
    *last = index;
    return rc < 0 ? rc : ltn_buf_append(out, bytes, n);
}

int ltn_hist_blob_write(struct ltn_buf *out, const uint32_t *counts, size_t n)
{
    size_t last = SIZE_MAX;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = put_bucket(out, &last, i, counts[i]);
    }
    return rc;
}

int ltn_hist_blob_write64(struct ltn_buf *out, const uint64_t *counts, size_t n)
{
    size_t last = SIZE_MAX;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = put_bucket(out, &last, i, counts[i]);
    }
    return rc;
}

static int get_number(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret = v;
            return 0;
        }
    }
    return LTN_ERR_MALFORMED;
}

int ltn_hist_blob_add(const void *blob, size_t len, uint64_t *counts, size_t n)
{
    const uint8_t *at = blob;
    const uint8_t *end = at + len;
    size_t index = 0;
    if (len == 0) {
        return 0;
    }
    if (*at++ != BLOB_VERSION) {
        return LTN_ERR_MALFORMED;
    }
    while (at < end) {
        uint64_t step;
        uint64_t count;
        if (get_number(&at, end, &step) < 0 || get_number(&at, end, &count) < 0 || step >= n ||
            index + step >= n) {
            return LTN_ERR_MALFORMED;
        }
        index += step;
        counts[index] += count;
    }
    return 0;
}

/* ---- SQL ---- */

struct merge {
    uint64_t counts[LTN_KHIST_BUCKETS];
};

static void merge_step(void *state, const struct ltn_sql_value *args, size_t n)
{
    struct merge *m = state;
    if (n == 1 && args[0].type == LTN_SQL_BLOB) {
        /* A damaged blob adds what could be read of it. */
        int rc = ltn_hist_blob_add(args[0].p, args[0].n, m->counts, LTN_KHIST_BUCKETS);
        (void)rc;
    }
}

static void merge_finish(void *state, struct ltn_sql_value *ret)
{
    const struct merge *m = state;
    struct ltn_buf out;
    if (m == NULL) {
        return;
    }
    ltn_buf_init(&out, BLOB_MAX_BYTES);
    if (ltn_hist_blob_write64(&out, m->counts, LTN_KHIST_BUCKETS) == 0 && out.len > 0) {
        size_t n = 0;
        ret->p = ltn_buf_steal(&out, &n);
        ret->n = n;
        ret->type = LTN_SQL_BLOB;
    }
    ltn_buf_done(&out);
}

static void quantile(const struct ltn_sql_value *args, size_t n, struct ltn_sql_value *ret)
{
    uint64_t counts[LTN_KHIST_BUCKETS] = {0};
    double q = args[1].f;
    (void)n;
    if (args[0].type != LTN_SQL_BLOB || isnan(q) ||
        ltn_hist_blob_add(args[0].p, args[0].n, counts, LTN_KHIST_BUCKETS) < 0) {
        return;
    }
    ret->type = LTN_SQL_I64;
    ret->i = (int64_t)ltn_khist_quantile_ns(counts, LTN_KHIST_BUCKETS, q);
}

static void count(const struct ltn_sql_value *args, size_t n, struct ltn_sql_value *ret)
{
    uint64_t counts[LTN_KHIST_BUCKETS] = {0};
    uint64_t sum = 0;
    (void)n;
    if (args[0].type != LTN_SQL_BLOB ||
        ltn_hist_blob_add(args[0].p, args[0].n, counts, LTN_KHIST_BUCKETS) < 0) {
        return;
    }
    for (size_t i = 0; i < LTN_KHIST_BUCKETS; i++) {
        sum += counts[i];
    }
    ret->type = LTN_SQL_I64;
    ret->i = (int64_t)sum;
}

int ltn_hist_blob_register(struct ltn_db *db)
{
    static const struct ltn_sql_aggregate merge = {
        "hist_merge", 1, sizeof(struct merge), merge_step, merge_finish, free};
    int rc = ltn_db_add_aggregate(db, &merge);
    if (rc == 0) {
        rc = ltn_db_add_function(db, "hist_quantile", 2, quantile);
    }
    if (rc == 0) {
        rc = ltn_db_add_function(db, "hist_count", 1, count);
    }
    return rc;
}
