/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "io/loop.h"

struct order {
    struct ltn_timer timer;
    int id;
    int *log;
    size_t *len;
};

static void note(void *arg)
{
    struct order *o = arg;
    o->log[(*o->len)++] = o->id;
}

static void test_timers_fire_in_order(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct ltn_loop *l = ltn_loop_new();
    struct order *items = calloc(COUNT, sizeof(*items));
    int log[COUNT];
    size_t len = 0;
    uint64_t base = ltn_now_mono_ns();
    assert_non_null(l);
    for (int i = 0; i < COUNT; i++) {
        items[i] = (struct order){.id = i * 7919 % COUNT, .log = log, .len = &len};
        assert_int_equal(
            ltn_loop_timer_at(l, &items[i].timer, base + (uint64_t)items[i].id, note, &items[i]),
            0);
    }
    /* Stop every third, move every fifth to the end, keeping the order among them. */
    size_t expect = COUNT;
    for (int i = 0; i < COUNT; i++) {
        if (items[i].id % 3 == 0) {
            ltn_loop_timer_stop(l, &items[i].timer);
            ltn_loop_timer_stop(l, &items[i].timer);
            expect--;
        } else if (items[i].id % 5 == 0) {
            uint64_t due = base + COUNT + (uint64_t)items[i].id;
            assert_int_equal(ltn_loop_timer_at(l, &items[i].timer, due, note, &items[i]), 0);
        }
    }
    while (len < expect) {
        assert_int_equal(ltn_loop_step(l, 1000), 0);
    }
    for (size_t i = 1; i < len; i++) {
        int a = log[i - 1] + (log[i - 1] % 5 == 0 ? COUNT : 0);
        int b = log[i] + (log[i] % 5 == 0 ? COUNT : 0);
        assert_true(a < b);
        assert_int_not_equal(log[i] % 3, 0);
    }
    ltn_loop_free(l);
    free(items);
}

struct pair {
    struct ltn_loop *loop;
    struct ltn_watch a;
    struct ltn_watch b;
    int calls;
};

static void drop_other(void *arg, uint32_t events)
{
    struct pair *p = arg;
    (void)events;
    p->calls++;
    ltn_loop_unwatch(p->loop, &p->a);
    ltn_loop_unwatch(p->loop, &p->b);
}

static void test_unwatch_within_a_round(void **state)
{
    (void)state;
    struct pair p = {.loop = ltn_loop_new()};
    int x[2];
    int y[2];
    assert_int_equal(pipe(x), 0);
    assert_int_equal(pipe(y), 0);
    assert_int_equal(write(x[1], "x", 1), 1);
    assert_int_equal(write(y[1], "y", 1), 1);
    assert_int_equal(ltn_loop_watch(p.loop, &p.a, x[0], EPOLLIN, drop_other, &p), 0);
    assert_int_equal(ltn_loop_watch(p.loop, &p.b, y[0], EPOLLIN, drop_other, &p), 0);
    assert_int_equal(ltn_loop_step(p.loop, 0), 0);
    assert_int_equal(p.calls, 1); /* both were ready; the first call took the second away */
    assert_int_equal(ltn_loop_step(p.loop, 0), 0);
    assert_int_equal(p.calls, 1);
    ltn_loop_free(p.loop);
    for (int i = 0; i < 2; i++) {
        close(x[i]);
        close(y[i]);
    }
}

enum { POSTERS = 4, POSTS = 2000 };

struct posted {
    struct ltn_task task;
    struct ltn_loop *loop;
    int *count;
};

static void on_posted(struct ltn_task *task)
{
    struct posted *p = (struct posted *)task;
    if (++*p->count == POSTERS * POSTS) {
        ltn_loop_stop(p->loop);
    }
    free(p);
}

struct poster {
    struct ltn_loop *loop;
    int *count;
};

static void *post_many(void *arg)
{
    struct poster *o = arg;
    for (int i = 0; i < POSTS; i++) {
        struct posted *p = calloc(1, sizeof(*p));
        p->loop = o->loop;
        p->count = o->count;
        p->task.fn = on_posted;
        ltn_loop_post(o->loop, &p->task);
    }
    return NULL;
}

static void test_posts_from_threads(void **state)
{
    (void)state;
    int count = 0;
    struct poster o = {ltn_loop_new(), &count};
    pthread_t threads[POSTERS];
    for (int i = 0; i < POSTERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &o), 0);
    }
    assert_int_equal(ltn_loop_run(o.loop), 0);
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(count, POSTERS * POSTS);
    ltn_loop_free(o.loop);
}

static void nothing(struct ltn_task *task)
{
    (void)task;
}

static void test_rest_is_noticed(void **state)
{
    (void)state;
    struct ltn_loop *l = ltn_loop_new();
    struct ltn_task task = {.fn = nothing};
    assert_non_null(l);
    uint64_t made_ns = ltn_loop_rested_ns(l);
    ltn_loop_post(l, &task);
    assert_int_equal(ltn_loop_step(l, 50), 0);
    assert_int_equal(ltn_loop_rested_ns(l), made_ns); /* there was something to do */
    assert_int_equal(ltn_loop_step(l, 0), 0);
    uint64_t looked_ns = ltn_loop_rested_ns(l);
    assert_true(looked_ns > made_ns); /* nobody waited */
    assert_int_equal(ltn_loop_step(l, 2), 0);
    assert_true(ltn_loop_rested_ns(l) >= looked_ns + 1000000);
    ltn_loop_free(l);
}

static void test_free_runs_waiting_tasks(void **state)
{
    (void)state;
    int count = 0;
    struct ltn_loop *l = ltn_loop_new();
    struct posted *p = calloc(1, sizeof(*p));
    p->loop = l;
    p->count = &count;
    p->task.fn = on_posted;
    ltn_loop_post(l, &p->task);
    ltn_loop_free(l);
    assert_int_equal(count, 1);
}

static void on_signal(void *arg, int signo)
{
    *(int *)arg = signo;
}

static void test_signals(void **state)
{
    (void)state;
    struct ltn_loop *l = ltn_loop_new();
    sigset_t set;
    int got = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    assert_int_equal(ltn_loop_signals(l, &set, on_signal, &got), 0);
    assert_int_equal(ltn_loop_signals(l, &set, on_signal, &got), -16);
    raise(SIGUSR2);
    assert_int_equal(ltn_loop_step(l, 1000), 0);
    assert_int_equal(got, SIGUSR2);
    ltn_loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers_fire_in_order),
        cmocka_unit_test(test_unwatch_within_a_round),
        cmocka_unit_test(test_posts_from_threads),
        cmocka_unit_test(test_rest_is_noticed),
        cmocka_unit_test(test_free_runs_waiting_tasks),
        cmocka_unit_test(test_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
