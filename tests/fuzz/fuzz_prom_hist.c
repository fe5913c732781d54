/* SPDX-License-Identifier: Apache-2.0 */
/* Histogram states from bytes, as from a disk: what loads can be written, merged with itself and
 * saved again; its buckets are cumulative and end in the count. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prom/hist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* Values of x_bucket lines never fall. */
static void check_cumulative(const char *text)
{
    unsigned long long before = 0;
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "x_bucket", 8) != 0)
            continue;
        unsigned long long n = strtoull(strchr(line, ' ') + 1, NULL, 10);
        require(n >= before);
        before = n;
    }
}

static void write_it(const struct ltn_hist *h)
{
    struct ltn_hist_grid g;
    struct ltn_prom p;
    struct ltn_buf out;
    ltn_hist_grid_begin(&g);
    ltn_hist_grid_add(&g, h);
    ltn_hist_grid_end(&g);
    require(g.n <= LTN_HIST_EDGES + 4);
    ltn_buf_init(&out, 1 << 20);
    ltn_prom_begin(&p, &out, LTN_PROM_TEXT);
    ltn_prom_family(&p, "x", LTN_PROM_HISTOGRAM, NULL, NULL);
    ltn_hist_write(h, &g, "", &p);
    require(ltn_buf_error(&out) == 0);
    check_cumulative(ltn_buf_str(&out));
    ltn_buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_hist *h = ltn_hist_load(data, size);
    if (h == NULL)
        return 0;
    struct ltn_buf again, third;
    ltn_buf_init(&again, 1 << 20);
    ltn_buf_init(&third, 1 << 20);
    write_it(h);
    require(ltn_hist_save(h, &again) == 0);
    struct ltn_hist *copy = ltn_hist_load(again.data, again.len);
    require(copy != NULL && ltn_hist_save(copy, &third) == 0);
    require(third.len == again.len && memcmp(third.data, again.data, again.len) == 0);
    static const uint64_t counts[] = {1, 2, 3};
    struct ltn_hist_point p = {.kind = LTN_HIST_EXPONENTIAL,
                               .delta = true,
                               .scale = 5,
                               .zero_threshold = 0.001,
                               .count = 12,
                               .positive = {counts, 3, -100},
                               .negative = {counts, 3, 7}};
    enum ltn_hist_fate fate;
    require(ltn_hist_set(copy, &p, false, &fate) == 0);
    write_it(copy);
    ltn_buf_done(&again);
    ltn_buf_done(&third);
    ltn_hist_free(h);
    ltn_hist_free(copy);
    return 0;
}
