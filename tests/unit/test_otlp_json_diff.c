/* SPDX-License-Identifier: Apache-2.0 */
/* The same random request as protobuf and as JSON text means the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "otlp/json_read.h"
#include "otlp_dump.h"
#include "otlp_gen.h"
#include "otlp_json_gen.h"

#define ROUNDS 1500

struct bufs {
    struct ltn_buf plain, text, wire, ours, oracle;
};

static void bufs_init(struct bufs *b)
{
    ltn_buf_init(&b->plain, 1 << 24);
    ltn_buf_init(&b->text, 1 << 24);
    ltn_buf_init(&b->wire, 1 << 24);
    ltn_buf_init(&b->ours, 1 << 26);
    ltn_buf_init(&b->oracle, 1 << 26);
}

static void bufs_done(struct bufs *b)
{
    ltn_buf_done(&b->plain);
    ltn_buf_done(&b->text);
    ltn_buf_done(&b->wire);
    ltn_buf_done(&b->ours);
    ltn_buf_done(&b->oracle);
}

static void generate(struct otlp_rng *rng, bool logs, struct ltn_buf *out)
{
    ltn_buf_reset(out);
    if (logs) {
        otlp_gen_logs(rng, out);
    } else {
        otlp_gen_metrics(rng, out);
    }
}

static int read_json(bool logs, const struct ltn_buf *text, struct ltn_buf *wire)
{
    struct ltn_otlp_json_info info;
    ltn_buf_reset(wire);
    return ltn_otlp_json_read(logs ? LTN_OTLP_LOGS : LTN_OTLP_METRICS, text->data, text->len, 32,
                              wire, &info);
}

static void same(const struct bufs *b, const char *what, uint64_t seed)
{
    if (b->ours.len == b->oracle.len &&
        memcmp(ltn_buf_str(&b->ours), ltn_buf_str(&b->oracle), b->ours.len) == 0) {
        return;
    }
    (void)fprintf(stderr, "--- JSON\n%s\n--- as read\n%s\n--- protobuf\n%s\n", b->text.data,
                  ltn_buf_str(&b->ours), ltn_buf_str(&b->oracle));
    fail_msg("seed %u: %s differ", (unsigned)seed, what);
}

static void diff(bool logs, bool wild)
{
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    struct bufs b;
    size_t bytes = 0;
    assert_non_null(r);
    bufs_init(&b);
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        struct otlp_rng rng = {seed};
        generate(&rng, logs, &b.plain);
        ltn_buf_reset(&b.text);
        otlp_json_write(&rng, logs, &b.plain, wild, &b.text);
        int rc = read_json(logs, &b.text, &b.wire);
        if (rc != 0) {
            fail_msg("seed %u: %d for %s", (unsigned)seed, rc, b.text.data);
        }
        ltn_buf_reset(&b.oracle);
        assert_true(otlp_dump_oracle(logs, &b.plain, &b.oracle));
        ltn_buf_reset(&b.ours);
        assert_int_equal(otlp_dump_ours(r, logs, &b.wire, &b.ours), 0);
        same(&b, "callbacks", seed);
        /* protobuf-c understands what was made of the text as well. */
        ltn_buf_reset(&b.ours);
        assert_true(otlp_dump_oracle(logs, &b.wire, &b.ours));
        same(&b, "messages", seed);
        bytes += b.ours.len;
    }
    assert_true(bytes > ROUNDS * 500);
    bufs_done(&b);
    ltn_otlp_reader_free(r);
}

static void test_metrics(void **state)
{
    (void)state;
    diff(false, false);
    diff(false, true);
}

static void test_logs(void **state)
{
    (void)state;
    diff(true, false);
    diff(true, true);
}

/* Damaged text is refused or read; what is read is a request that protobuf-c takes. */
static void test_damaged(void **state)
{
    (void)state;
    struct bufs b;
    unsigned accepted = 0, refused = 0;
    bufs_init(&b);
    for (uint64_t seed = 1; seed <= 4 * ROUNDS; seed++) {
        struct otlp_rng rng = {seed};
        generate(&rng, seed % 2 == 0, &b.plain);
        ltn_buf_reset(&b.text);
        otlp_json_write(&rng, seed % 2 == 0, &b.plain, true, &b.text);
        size_t at = otlp_rng_below(&rng, b.text.len);
        if (otlp_rng_below(&rng, 4) == 0) {
            b.text.len = at;
        } else {
            b.text.data[at] = (char)otlp_rng_below(&rng, 256);
        }
        int rc = read_json(seed % 2 == 0, &b.text, &b.wire);
        if (rc == 0) {
            accepted++;
            ltn_buf_reset(&b.oracle);
            assert_true(otlp_dump_oracle(seed % 2 == 0, &b.wire, &b.oracle));
        } else {
            refused++;
            assert_true(rc == LTN_ERR_MALFORMED || rc == LTN_ERR_DEPTH);
        }
    }
    assert_true(accepted > 100 && refused > 1000);
    bufs_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("otlp_json_diff", tests, NULL, NULL);
}
