/* SPDX-License-Identifier: Apache-2.0 */
/* When a server is overloaded, and what it then lets in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "http/load.h"

#define MS    ((uint64_t)LTN_NS_PER_MS)
#define START (1000000 * MS)
#define BURST (LTN_LOAD_BURST_MS * MS)

/* A lane that gets per_ms requests answered in each millisecond. */
struct server {
    struct ltn_load l;
    uint64_t now_ns, rested_ns;
    uint32_t per_ms, turned_away;
};

static void init(struct server *s, uint32_t per_ms)
{
    *s =
        (struct server){.l.burst_ns = BURST, .now_ns = START, .rested_ns = START, .per_ms = per_ms};
}

/* One more request, which is let in, refused or left waiting. True: let in. */
static bool offer(struct ltn_load *l, uint64_t now_ns, uint64_t rested_ns)
{
    ltn_load_look(l, now_ns, rested_ns);
    if (ltn_load_has_room(l)) {
        ltn_load_let_in(l);
        return true;
    }
    *(l->overloaded ? &l->refused : &l->waiting) += 1;
    return false;
}

/* Those that waited, as far as there is room. Returns how many. */
static uint32_t let_in(struct ltn_load *l, uint64_t now_ns, uint64_t rested_ns)
{
    uint32_t n = 0;
    ltn_load_look(l, now_ns, rested_ns);
    for (; l->waiting > 0 && ltn_load_has_room(l); n++) {
        l->waiting--;
        ltn_load_let_in(l);
    }
    return n;
}

/* offered requests come in each of so many milliseconds. */
static void run(struct server *s, unsigned ms, uint32_t offered)
{
    for (unsigned i = 0; i < ms; i++) {
        s->now_ns += MS;
        (void)let_in(&s->l, s->now_ns, s->rested_ns);
        uint32_t refused = s->l.refused;
        for (uint32_t k = 0; k < offered; k++) {
            (void)offer(&s->l, s->now_ns, s->rested_ns);
        }
        s->turned_away += s->l.refused - refused;
        for (uint32_t k = 0; k < s->per_ms && s->l.in_progress > 0; k++) {
            ltn_load_over(&s->l, true);
        }
        if (s->l.in_progress == 0) {
            s->rested_ns = s->now_ns;
        }
    }
}

static void a_burst_is_worked_off(void **state)
{
    (void)state;
    struct server s;
    init(&s, 20);
    run(&s, LTN_LOAD_HOLD_MS - 10, 30);
    assert_int_equal(s.l.waiting, 0); /* what is soon done is let in whole */
    run(&s, 20, 60);                  /* more than many */
    assert_in_range(s.l.in_progress, 20 * LTN_LOAD_BURST_QUEUE_MS, LTN_LOAD_MANY + 60);
    assert_true(s.l.holds && s.l.waiting > 0);
    /* Three times of what it can do, for less than a burst may take: kept short, nothing refused.
     */
    run(&s, LTN_LOAD_BURST_MS / 3, 60);
    assert_true(s.l.holds && !s.l.overloaded);
    assert_int_equal(s.turned_away, 0);
    assert_true(s.l.in_progress < 20 * 3 * LTN_LOAD_BURST_QUEUE_MS);
    uint32_t left = s.l.waiting + s.l.in_progress;
    run(&s, left / 20 + LTN_LOAD_WINDOW_MS, 0); /* no longer than the work takes */
    assert_int_equal(s.l.waiting + s.l.in_progress, 0);
    assert_false(s.l.holds);
    assert_int_equal(s.turned_away, 0);
}

static void a_load_that_stays_is_kept_short(void **state)
{
    (void)state;
    struct server s;
    init(&s, 20);
    run(&s, LTN_LOAD_BURST_MS + 500, 60);
    assert_true(s.l.overloaded);
    run(&s, 10000, 60); /* what the burst left is done by then */
    /* What is answered in that time is let in, no more, and all of its time is used. */
    assert_in_range(s.l.in_progress, 20 * (LTN_LOAD_QUEUE_MS - 1), 20 * (LTN_LOAD_QUEUE_MS + 2));
    assert_true(s.turned_away > 30000);
    uint32_t before = s.turned_away;
    run(&s, 100, 60);
    assert_in_range(s.turned_away - before, 3900, 4100);
}

static void it_ends_when_the_load_does(void **state)
{
    (void)state;
    struct server s;
    init(&s, 20);
    run(&s, LTN_LOAD_BURST_MS + 10000, 60);
    assert_true(s.l.overloaded);
    run(&s, 400, 10);
    assert_false(s.l.overloaded || s.l.holds);
    uint32_t before = s.turned_away;
    run(&s, 200, 60); /* the next is a burst again */
    assert_false(s.l.overloaded);
    assert_int_equal(s.turned_away, before);
}

/* Nobody comes for a moment, so nobody looks. */
static void it_ends_when_everybody_goes(void **state)
{
    (void)state;
    struct server s;
    init(&s, 20);
    run(&s, LTN_LOAD_BURST_MS + 10000, 60);
    assert_true(s.l.overloaded);
    while (s.l.in_progress > 0) {
        ltn_load_over(&s.l, true);
    }
    s.l.waiting = 0;
    s.now_ns += 300 * MS;
    s.rested_ns = s.now_ns;
    uint32_t before = s.turned_away;
    run(&s, 1, 5000);
    assert_false(s.l.overloaded);
    assert_int_equal(s.turned_away, before);
}

/* A few clients that keep it busy, and are all answered soon. */
static void work_without_a_rest_is_no_overload_while_nobody_waits(void **state)
{
    (void)state;
    struct server s;
    init(&s, 20);
    run(&s, 1, 20 * (LTN_LOAD_BURST_QUEUE_MS - 10));
    run(&s, 3 * LTN_LOAD_BURST_MS, 20);
    assert_true(s.l.holds && !s.l.overloaded);
    assert_int_equal(s.turned_away + s.l.waiting, 0);
    run(&s, 1, 2000); /* a burst on top of that is one */
    assert_true(s.l.waiting > 0 && !s.l.overloaded);
    assert_int_equal(s.turned_away, 0);
}

/* As much as it can do, without a rest, but nothing more. */
static void a_full_load_is_not_refused_for_ever(void **state)
{
    (void)state;
    struct server s;
    init(&s, 20);
    run(&s, LTN_LOAD_BURST_MS + 10000, 60);
    assert_true(s.l.overloaded);
    uint64_t rested_ns = s.rested_ns;
    for (int i = 0; i < 3000; i++) {
        run(&s, 1, 20);
        s.rested_ns = rested_ns;
    }
    assert_true(s.l.holds && !s.l.overloaded);
}

/* Room is short for another reason than time, such as bytes: the queue at the door tells. */
static void those_that_wait_for_ever_are_overload(void **state)
{
    (void)state;
    struct ltn_load l = {.burst_ns = BURST};
    uint64_t now = START;
    ltn_load_look(&l, now, now);
    l.waiting = 5;
    for (int i = 1; i < LTN_LOAD_BURST_MS; i++) {
        now += MS;
        ltn_load_look(&l, now, now - MS / 2);
        assert_false(l.overloaded);
    }
    ltn_load_look(&l, now + 2 * MS, now);
    assert_true(l.overloaded);
    l.waiting = 0;
    ltn_load_look(&l, now + LTN_LOAD_WINDOW_MS * MS * 2, now + LTN_LOAD_WINDOW_MS * MS * 2);
    assert_false(l.overloaded);
}

static void the_limit_grows_while_there_is_rest(void **state)
{
    (void)state;
    struct ltn_load l = {.burst_ns = BURST};
    uint64_t now = START;
    ltn_load_look(&l, now, now - 2 * LTN_LOAD_BURST_MS * MS);
    assert_true(l.holds);
    assert_int_equal(l.limit, LTN_LOAD_LEAST);
    uint32_t limit = LTN_LOAD_LEAST;
    for (int i = 0; i < 5; i++) {
        while (offer(&l, now, now - 2 * LTN_LOAD_BURST_MS * MS)) {
        }
        assert_int_equal(l.in_progress, limit);
        now += LTN_LOAD_WINDOW_MS * MS;
        ltn_load_look(&l, now, now - MS);
        limit += limit / 2;
        assert_int_equal(l.limit, limit);
    }
}

/* The same, played: bodies come 60 ms after they were asked for, so that what is answered in a
 * moment alone would leave the server idle. */
static void far_peers_get_their_share(void **state)
{
    (void)state;
    enum { AWAY_MS = 60, PER_MS = 20, RUN_MS = 20000 };
    struct ltn_load l = {.burst_ns = BURST};
    uint32_t coming[AWAY_MS] = {0}, there = 0, answered = 0;
    uint64_t now = START, rested = START;
    for (int i = 0; i < RUN_MS; i++) {
        uint32_t *slot = &coming[i % AWAY_MS];
        now += MS;
        there += *slot;
        *slot = let_in(&l, now, rested);
        for (int k = 0; k < 3 * PER_MS; k++) {
            *slot += offer(&l, now, rested) ? 1 : 0;
        }
        for (int k = 0; k < PER_MS && there > 0; k++, there--) {
            ltn_load_over(&l, true);
            answered += i >= RUN_MS / 2 ? 1 : 0;
        }
        rested = there == 0 ? now : rested;
    }
    assert_true(l.overloaded);
    assert_true(answered > RUN_MS / 2 * PER_MS * 9 / 10);
}

static void a_few_are_always_let_in(void **state)
{
    (void)state;
    struct ltn_load l = {.burst_ns = BURST};
    struct ltn_load_total t;
    ltn_load_total_init(&t, 1, 1000);
    ltn_load_look(&l, START, 0);
    assert_true(l.holds);
    ltn_load_total_body(&t, 1 << 20);
    for (; l.in_progress < LTN_LOAD_LEAST; l.in_progress++, t.in_progress++) {
        assert_true(ltn_load_has_room(&l));
        assert_true(ltn_load_total_has_room(&t));
    }
    assert_false(ltn_load_has_room(&l));
    assert_false(ltn_load_total_has_room(&t));
    ltn_load_over(&l, false); /* its peer went */
    assert_true(ltn_load_has_room(&l));
    assert_int_equal(l.answered, 0);
}

static void bodies_have_a_bound(void **state)
{
    (void)state;
    struct ltn_load_total t;
    ltn_load_total_init(&t, (size_t)64 * (32768 + LTN_LOAD_OWN_BYTES), 1000);
    for (int i = 0; i < 200; i++) {
        ltn_load_total_body(&t, 32768 + 15); /* an average in whole sixteenths */
    }
    for (; ltn_load_total_has_room(&t); t.in_progress++) {
        t.bytes += t.body_bytes + LTN_LOAD_OWN_BYTES;
    }
    assert_in_range(t.in_progress, 63, 65);
    /* A few enormous ones are no reason to expect the like of everybody. */
    for (int i = 0; i < 200; i++) {
        ltn_load_total_body(&t, 64 << 20);
    }
    assert_true(t.body_bytes <= LTN_LOAD_LARGE_BYTES);
}

static void refusals_have_a_rate(void **state)
{
    (void)state;
    struct ltn_load_total t;
    uint32_t n = 0;
    ltn_load_total_init(&t, 0, 1000);
    while (ltn_load_total_may_refuse(&t, START)) {
        n++;
    }
    assert_int_equal(n, 21);
    for (uint64_t i = 1; i <= 1000; i++) {
        n += ltn_load_total_may_refuse(&t, START + i * MS) ? 1 : 0;
    }
    assert_int_equal(n, 1021);
    assert_false(ltn_load_total_may_refuse(&t, START + 1000 * MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_is_worked_off),
        cmocka_unit_test(a_load_that_stays_is_kept_short),
        cmocka_unit_test(it_ends_when_the_load_does),
        cmocka_unit_test(it_ends_when_everybody_goes),
        cmocka_unit_test(work_without_a_rest_is_no_overload_while_nobody_waits),
        cmocka_unit_test(a_full_load_is_not_refused_for_ever),
        cmocka_unit_test(those_that_wait_for_ever_are_overload),
        cmocka_unit_test(the_limit_grows_while_there_is_rest),
        cmocka_unit_test(far_peers_get_their_share),
        cmocka_unit_test(a_few_are_always_let_in),
        cmocka_unit_test(bodies_have_a_bound),
        cmocka_unit_test(refusals_have_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
