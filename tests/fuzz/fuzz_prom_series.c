/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs of series with a right checksum and anything in them, up to four behind one another: what
 * is read can be shown, saved anew and read back, and is then the same number of series. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "prom/series.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADING_BYTES = 48, CHECKSUM_AT = 8, CHECKED_FROM = 16, DEFS_AT = 40 };

static void require(int condition)
{
    if (!condition)
        abort();
}

static struct ltn_series *new_series(void)
{
    const struct ltn_series_opts o = {.max_families = 64, .max_per_family = 64, .max_series = 256};
    struct ltn_series *s = ltn_series_new(&o);
    require(s != NULL);
    return s;
}

/* The first byte says whether the heading's count of descriptions fits. */
static void load(struct ltn_series *s, const uint8_t *p, size_t n, uint64_t now_ns)
{
    uint8_t *blob = calloc(1, HEADING_BYTES + n);
    require(blob != NULL);
    memcpy(blob, "LTS1", 4);
    blob[DEFS_AT] = n > 0 ? p[0] & 1 : 0;
    if (n > 1)
        memcpy(blob + HEADING_BYTES, p + 1, n - 1);
    size_t len = HEADING_BYTES + (n > 1 ? n - 1 : 0);
    uint64_t sum = XXH3_64bits(blob + CHECKED_FROM, len - CHECKED_FROM);
    memcpy(blob + CHECKSUM_AT, &sum, sizeof(sum));
    require(ltn_series_load(s, blob, len, now_ns) == 0);
    free(blob);
}

static size_t count(struct ltn_series *s)
{
    struct ltn_series_stats st;
    ltn_series_stats(s, &st);
    return st.series;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_series *s = new_series(), *again = new_series();
    struct ltn_buf b;
    struct ltn_prom p;
    /* Headings say the year 1970: near the beginning of the clock nothing is too old. */
    uint64_t now_ns = LTN_NS_PER_S;
    size_t parts = size > 0 ? (data[0] & 3) + 1u : 1, each = size / parts + 1;
    for (size_t at = 0; at < size; at += each)
        load(s, data + at, size - at < each ? size - at : each, now_ns);
    require(ltn_series_load_end(s, now_ns) == 0);
    ltn_buf_init(&b, (size_t)1 << 24);
    ltn_prom_begin(&p, &b, LTN_PROM_OPENMETRICS);
    ltn_series_write(s, &p);
    ltn_buf_reset(&b);
    ltn_series_save_begin(s, true);
    while (ltn_series_save_next(s, &b, 512)) {
        require(ltn_series_load(again, b.data, b.len, now_ns) == 0);
        ltn_buf_reset(&b);
    }
    ltn_series_save_end(s, true);
    require(ltn_series_load_end(again, now_ns) == 0);
    require(count(again) == count(s));
    ltn_buf_done(&b);
    ltn_series_free(again);
    ltn_series_free(s);
    return 0;
}
