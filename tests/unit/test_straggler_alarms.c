/* SPDX-License-Identifier: Apache-2.0 */
/*
 * False alarms on healthy jobs, and how soon a fault is found. Healthy: lasting differences of sd
 * 1.5 %, AR(1) noise (0.5) of sd 2 % with heavy tails (t with 4 degrees), own pauses of 1 to 3
 * windows (+30 %) at 0.1 per hour, pauses of the whole group (+40 %). Seeded; figures are printed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "straggler_sim.h"

struct health {
    double offset_sd, noise_sd, rho, pauses_per_hour;
};

static const struct health base = {0.015, 0.02, 0.5, 0.1};
static const struct health noisy = {0.015, 0.06, 0.5, 0.1};
static const struct health busy = {0.015, 0.02, 0.5, 0.72};

struct world {
    struct sim s;
    double offset[SIM_MAX], ar[SIM_MAX];
    unsigned pause[SIM_MAX], group_pause;
};

/* Student's t with 4 degrees, scaled to variance 1. */
static double heavy(struct sim_rng *r)
{
    double chi = 0;
    for (int i = 0; i < 4; i++) {
        double z = sim_normal(r);
        chi += z * z;
    }
    return sim_normal(r) / sqrt(chi / 4) / sqrt(2);
}

static void world_init(struct world *w, size_t n, const struct health *h, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    sim_init(&w->s, n, seed);
    w->s.noise = 0;
    for (size_t i = 0; i < n; i++)
        w->offset[i] = h->offset_sd * sim_normal(&w->s.rng);
}

static void world_window(struct world *w, const struct health *h, size_t faulty, double fault)
{
    struct sim_rng *r = &w->s.rng;
    double own_rate = h->pauses_per_hour / 360, group_rate = 0.5 / 360;
    if (w->group_pause > 0)
        w->group_pause--;
    else if (sim_uniform(r) < group_rate)
        w->group_pause = 1 + (unsigned)(3 * sim_uniform(r));
    for (size_t i = 0; i < w->s.n; i++) {
        w->ar[i] = h->rho * w->ar[i] + sqrt(1 - h->rho * h->rho) * h->noise_sd * heavy(r);
        if (w->pause[i] > 0)
            w->pause[i]--;
        else if (sim_uniform(r) < own_rate)
            w->pause[i] = 1 + (unsigned)(3 * sim_uniform(r));
        double x = w->offset[i] + w->ar[i] + (w->pause[i] > 0 ? log(1.3) : 0) +
                   (w->group_pause > 0 ? log(1.4) : 0) + (i == faulty ? fault : 0);
        w->s.slow[i] = exp(x);
    }
    assert_int_equal(sim_window(&w->s), 0);
}

/* Under a sanitizer, which asks how memory is used and is many times slower, a tenth is enough. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NODE_HOURS 500
#define TRIALS     10
#else
#define NODE_HOURS 5000
#define TRIALS     100
#endif

/* Alarms on healthy nodes over at least that many node-hours. */
static unsigned false_alarms(size_t n, const struct health *h, double node_hours, uint64_t seed)
{
    unsigned alarms = 0;
    const double hours = 10;
    for (double done = 0; done < node_hours; done += hours * (double)n) {
        struct world w;
        world_init(&w, n, h, seed++);
        for (unsigned i = 0; i < (unsigned)(hours * 360); i++)
            world_window(&w, h, SIM_MAX, 0);
        alarms += w.s.opened;
        sim_done(&w.s);
    }
    return alarms;
}

static void healthy_jobs_are_left_alone(void **state)
{
    (void)state;
    static const size_t sizes[] = {2, 3, 4, 8, 64};
    unsigned total = 0;
    for (size_t k = 0; k < LTN_ARRAY_SIZE(sizes); k++) {
        unsigned a = false_alarms(sizes[k], &base, NODE_HOURS, 1000 * (k + 1));
        printf("base, n = %2zu: %u alarms in %d node-hours\n", sizes[k], a, NODE_HOURS);
        total += a;
    }
    /* Of 25,000 node-hours at most 0.4 in 1,000 of them. */
    assert_true(total <= 10);
}

static void stress_stays_bounded(void **state)
{
    (void)state;
    unsigned a = false_alarms(8, &noisy, NODE_HOURS, 77);
    unsigned b = false_alarms(8, &busy, NODE_HOURS, 78);
    printf("noise sd 6 %%, n = 8: %u, pauses 0.72/h, n = 8: %u alarms in %d node-hours each\n", a,
           b, NODE_HOURS);
    assert_true(a <= 10 && b <= 10);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void faults_are_found_soon_and_nobody_else_is_blamed(void **state)
{
    (void)state;
    static const double faults[] = {0.10, 0.20, 0.50, 1.00};
    for (size_t f = 0; f < LTN_ARRAY_SIZE(faults); f++) {
        double delay[TRIALS];
        size_t found = 0, blamed = 0;
        for (size_t t = 0; t < TRIALS; t++) {
            struct world w;
            world_init(&w, 8, &base, 5000 + 100 * f + t);
            for (int i = 0; i < 60; i++)
                world_window(&w, &base, SIM_MAX, 0);
            for (int i = 1; i <= 360 && !(w.s.named & 1); i++) {
                world_window(&w, &base, 0, log1p(faults[f]));
                if (w.s.named & 1)
                    delay[found++] = 10.0 * i;
            }
            blamed += (w.s.named & ~1ULL) != 0;
            sim_done(&w.s);
        }
        qsort(delay, found, sizeof(*delay), by_value);
        printf("+%.0f %%, n = 8: found %zu of %d, median %.0f s, p90 %.0f s, others blamed %zu\n",
               100 * faults[f], found, TRIALS, found ? delay[found / 2] : 0,
               found ? delay[found * 9 / 10] : 0, blamed);
        assert_true(blamed <= 3);
        if (faults[f] >= 0.2) {
            assert_int_equal(found, TRIALS);
            assert_true(delay[found * 9 / 10] <= 90);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_jobs_are_left_alone),
        cmocka_unit_test(stress_stays_bounded),
        cmocka_unit_test(faults_are_found_soon_and_nobody_else_is_blamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
