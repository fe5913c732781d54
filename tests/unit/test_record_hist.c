/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bpf/event.h"
#include "record/hist_blob.h"

static void round_trip_and_merge(void **state)
{
    (void)state;
    uint32_t in[LTN_HIST_BUCKETS] = {0};
    uint64_t out[LTN_HIST_BUCKETS] = {0};
    struct ltn_buf b;
    ltn_buf_init(&b, 16384);
    in[0] = 1;
    in[16] = UINT32_MAX;
    in[LTN_HIST_BUCKETS - 1] = 300;
    assert_int_equal(ltn_hist_blob_write(&b, in, LTN_HIST_BUCKETS), 0);
    assert_true(b.len < 20);
    assert_int_equal(ltn_hist_blob_add(b.data, b.len, out, LTN_HIST_BUCKETS), 0);
    assert_int_equal(ltn_hist_blob_add(b.data, b.len, out, LTN_HIST_BUCKETS), 0);
    for (size_t i = 0; i < LTN_HIST_BUCKETS; i++) {
        assert_int_equal(out[i], 2ULL * in[i]);
    }
    ltn_buf_reset(&b);
    memset(in, 0, sizeof(in));
    assert_int_equal(ltn_hist_blob_write(&b, in, LTN_HIST_BUCKETS), 0);
    assert_int_equal(b.len, 0);
    ltn_buf_done(&b);
}

static void damaged_blobs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"\2\1\1", 3},
               {"\1\1", 2},
               {"\1\x80", 2},
               {"\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", 12},
               {"\1\x90\x04\x01", 4}, /* bucket 528 */
               {"\1\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        uint64_t out[LTN_HIST_BUCKETS] = {0};
        if (ltn_hist_blob_add(bad[i].bytes, bad[i].n, out, LTN_HIST_BUCKETS) != LTN_ERR_MALFORMED) {
            fail_msg("case %zu was accepted", i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_and_merge),
        cmocka_unit_test(damaged_blobs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
