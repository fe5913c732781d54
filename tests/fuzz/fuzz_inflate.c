/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies that claim to be gzip or zstd. The first byte chooses the quota; the result must not
 * depend on what was inflated before, must stay within quota, ratio and reserved memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "http/coding.h"

#define MAX_OUT   (2UL << 20)
#define RATIO     200
#define FROM      (1UL << 20)
#define STEP_SLOP (2UL << 20) /* the ratio is judged between steps */

static size_t reserved;

static bool reserve(void *arg, size_t n)
{
    const size_t *limit = arg;
    if (n > *limit - reserved) {
        return false;
    }
    reserved += n;
    return true;
}

static int inflate_once(struct ltn_inflater *z, enum ltn_coding coding, const uint8_t *p, size_t n,
                        size_t quota, size_t memory, struct ltn_buf *out)
{
    const struct ltn_inflate_limits limits = {
        .max_ratio = RATIO, .reserve = reserve, .arg = &memory};
    reserved = 0;
    ltn_buf_init(out, quota);
    int rc = ltn_inflate(z, coding, p, n, &limits, out);
    if (out->len > quota || out->len > reserved || reserved > memory) {
        abort();
    }
    if (out->len > FROM + STEP_SLOP && out->len / RATIO > n + STEP_SLOP / RATIO) {
        abort();
    }
    if (rc != 0 && rc != LTN_ERR_MALFORMED && rc != LTN_ERR_TOO_LARGE && rc != LTN_ERR_BUSY &&
        rc != -ENOMEM) {
        abort();
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void same_with_a_fresh_one(enum ltn_coding coding, const uint8_t *p, size_t n, size_t quota,
                                  size_t memory, int rc, const struct ltn_buf *out)
{
    struct ltn_inflater *fresh = ltn_inflater_new(20);
    struct ltn_buf again;
    if (fresh == NULL || inflate_once(fresh, coding, p, n, quota, memory, &again) != rc ||
        again.len != out->len || (out->len > 0 && memcmp(again.data, out->data, out->len) != 0)) {
        abort();
    }
    ltn_buf_done(&again);
    ltn_inflater_free(fresh);
}

static void there_and_back(struct ltn_inflater *z, const struct ltn_buf *out)
{
    const struct ltn_inflate_limits none = {0};
    struct ltn_buf zip;
    struct ltn_buf back;
    ltn_buf_init(&zip, MAX_OUT);
    ltn_buf_init(&back, MAX_OUT);
    if (ltn_gzip(ltn_buf_str(out), out->len, &zip) != 0 ||
        ltn_inflate(z, LTN_CODING_GZIP, (const uint8_t *)ltn_buf_str(&zip), zip.len, &none,
                    &back) != 0 ||
        back.len != out->len || (out->len > 0 && memcmp(back.data, out->data, out->len) != 0)) {
        abort();
    }
    ltn_buf_done(&zip);
    ltn_buf_done(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct ltn_inflater *z;
    if (n == 0) {
        return 0;
    }
    z = z != NULL ? z : ltn_inflater_new(20);
    size_t quota = (p[0] & 1) != 0 ? MAX_OUT : (size_t)p[0] * 64;
    size_t memory = (p[0] & 2) != 0 ? MAX_OUT * 2 : 10000;
    for (enum ltn_coding c = LTN_CODING_GZIP; c <= LTN_CODING_ZSTD; c++) {
        struct ltn_buf out;
        int rc = inflate_once(z, c, p + 1, n - 1, quota, memory, &out);
        if ((p[0] & 4) != 0) {
            same_with_a_fresh_one(c, p + 1, n - 1, quota, memory, rc, &out);
        }
        if (rc == 0 && out.len < 20000) {
            there_and_back(z, &out);
        }
        ltn_buf_done(&out);
    }
    return 0;
}
