/* SPDX-License-Identifier: Apache-2.0 */
/* Real training traces (tests/data/straggler): who must be named, who must not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "straggler/straggler.h"

#define MAX_ROWS   1024
#define MAX_STAGES 4

struct row {
    double step, rank, stage, dp, step_s, compute_s, blocked_s;
};

static size_t load(const char *path, struct row *rows)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[256];
    size_t n = 0;
    assert_non_null(fgets(line, sizeof(line), f));
    while (fgets(line, sizeof(line), f) != NULL) {
        double v[7];
        char *save = NULL;
        size_t k = 0;
        line[strcspn(line, "\r\n")] = '\0';
        for (char *t = strtok_r(line, ",", &save); t != NULL && k < 7;
             t = strtok_r(NULL, ",", &save))
            assert_true(ltn_parse_f64(t, &v[k++]));
        assert_int_equal(k, 7);
        assert_true(n < MAX_ROWS);
        rows[n++] = (struct row){v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
    }
    (void)fclose(f);
    return n;
}

struct result {
    uint64_t named; /* bit per rank */
    unsigned opened;
    double effect_pct;
};

static void on_event(void *ctx, enum ltn_straggler_change change, bool notable,
                     const struct ltn_straggler_verdict *v)
{
    struct result *r = ctx;
    (void)notable;
    r->named |= 1ULL << v->rank;
    r->opened += change == LTN_VERDICT_OPENED;
    r->effect_pct = v->effect_pct;
}

static void feed_stage(struct ltn_straggler *det, const struct row *rows, size_t n, double stage,
                       struct result *res)
{
    struct ltn_straggler_member m[MAX_ROWS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].stage != stage)
            continue;
        struct ltn_straggler_member *x = &m[k++];
        memset(x, 0, sizeof(*x));
        (void)snprintf(x->key, sizeof(x->key), "%.0f", rows[i].rank);
        (void)snprintf(x->node, sizeof(x->node), "n%.0f", rows[i].rank);
        x->rank = (int32_t)rows[i].rank;
        x->step_ns = rows[i].step_s * 1e9;
        x->self_ns = rows[i].compute_s * 1e9;
        x->peer_wait_ns = rows[i].blocked_s * 1e9;
        x->coverage = 1;
        x->gpu_clock = x->gpu_busy = -1;
    }
    char group[32];
    (void)snprintf(group, sizeof(group), "stage-%.0f", stage);
    struct ltn_straggler_window w = {.job = "trace",
                                     .group = group,
                                     .end_ns = (uint64_t)(rows[0].step + 1) * 60000000000ULL,
                                     .length_ns = 60000000000ULL,
                                     .expected = k,
                                     .job_gpus = 64,
                                     .members = m,
                                     .n = k};
    assert_int_equal(ltn_straggler_feed(det, &w, on_event, res, NULL), 0);
}

static struct result replay(const char *path)
{
    static struct row rows[MAX_ROWS];
    struct result res = {0, 0, 0};
    size_t n = load(path, rows);
    struct ltn_straggler *det = ltn_straggler_new(NULL);
    size_t from = 0;
    for (size_t i = 1; i <= n; i++) {
        if (i < n && rows[i].step == rows[from].step)
            continue;
        for (int stage = 0; stage < MAX_STAGES; stage++)
            feed_stage(det, rows + from, i - from, stage, &res);
        from = i;
    }
    ltn_straggler_free(det);
    return res;
}

static void a_slow_worker_among_sixteen(void **state)
{
    (void)state;
    struct result r = replay(LTN_TEST_DATA "/straggler/ar-selftime.csv");
    assert_int_equal(r.named, 1);
    assert_int_equal(r.opened, 1);
    assert_true(r.effect_pct > 100 && r.effect_pct < 170);
}

static void an_uneven_last_stage_is_nobodys_fault(void **state)
{
    (void)state;
    struct result r = replay(LTN_TEST_DATA "/straggler/st-selftime.csv");
    assert_int_equal(r.named, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_worker_among_sixteen),
        cmocka_unit_test(an_uneven_last_stage_is_nobodys_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
