/* SPDX-License-Identifier: Apache-2.0 */
#include "base/chan.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"
#include "cmocka_all.h"

static bool readable(const struct ltn_chan *c)
{
    struct pollfd p = {.fd = ltn_chan_fd(c), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void first_in_first_out(void **state)
{
    (void)state;
    int items[20];
    struct ltn_chan *c = ltn_chan_new(7, 1000);
    assert_non_null(c);
    size_t in = 0;
    size_t out = 0;
    while (out < 20) {
        while (in < 20 && ltn_chan_send(c, &items[in], 1) == 0) {
            in++;
        }
        assert_ptr_equal(ltn_chan_recv(c), &items[out]);
        out++;
    }
    assert_null(ltn_chan_recv(c));
    ltn_chan_free(c, NULL);
    ltn_chan_free(NULL, NULL);
}

static void full_by_items(void **state)
{
    (void)state;
    int item;
    struct ltn_chan *c = ltn_chan_new(2, 1000);
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    assert_int_equal(ltn_chan_send(c, &item, 1), LTN_ERR_BUSY);
    struct ltn_chan_stats s = ltn_chan_stats(c);
    assert_int_equal(s.items, 2);
    assert_int_equal(s.bytes, 2);
    assert_int_equal(s.high_water_items, 2);
    assert_int_equal(s.refused_total, 1);
    assert_ptr_equal(ltn_chan_recv(c), &item);
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    assert_int_equal(ltn_chan_stats(c).high_water_items, 2);
    ltn_chan_free(c, NULL);
}

static void full_by_bytes(void **state)
{
    (void)state;
    int item;
    struct ltn_chan *c = ltn_chan_new(10, 100);
    assert_int_equal(ltn_chan_send(c, &item, 60), 0);
    assert_int_equal(ltn_chan_send(c, &item, 41), LTN_ERR_BUSY);
    assert_int_equal(ltn_chan_send(c, &item, SIZE_MAX), LTN_ERR_BUSY);
    assert_int_equal(ltn_chan_send(c, &item, 40), 0);
    assert_int_equal(ltn_chan_send(c, &item, 1), LTN_ERR_BUSY);
    assert_int_equal(ltn_chan_send(c, &item, 0), 0);
    assert_int_equal(ltn_chan_stats(c).bytes, 100);
    assert_int_equal(ltn_chan_stats(c).refused_total, 3);
    ltn_chan_free(c, NULL);
}

static void one_oversized_item_passes_when_empty(void **state)
{
    (void)state;
    int item;
    struct ltn_chan *c = ltn_chan_new(10, 100);
    assert_int_equal(ltn_chan_send(c, &item, 5000), 0);
    assert_int_equal(ltn_chan_send(c, &item, 0), LTN_ERR_BUSY);
    assert_ptr_equal(ltn_chan_recv(c), &item);
    assert_int_equal(ltn_chan_stats(c).bytes, 0);
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    ltn_chan_free(c, NULL);
}

static void descriptor_tells_of_items_and_close(void **state)
{
    (void)state;
    int item;
    struct ltn_chan *c = ltn_chan_new(10, 100);
    assert_false(readable(c));
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    assert_true(readable(c));
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    assert_true(readable(c));
    assert_non_null(ltn_chan_recv(c));
    assert_true(readable(c));
    assert_non_null(ltn_chan_recv(c));
    assert_false(readable(c));
    assert_null(ltn_chan_recv(c));
    assert_null(ltn_chan_recv_wait(c, 0));
    ltn_chan_close(c);
    assert_true(readable(c));
    ltn_chan_free(c, NULL);
}

static void close_lets_the_rest_out(void **state)
{
    (void)state;
    int item;
    struct ltn_chan *c = ltn_chan_new(10, 100);
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    ltn_chan_close(c);
    ltn_chan_close(c);
    assert_int_equal(ltn_chan_send(c, &item, 1), LTN_ERR_CLOSED);
    assert_int_equal(ltn_chan_stats(c).refused_total, 0);
    assert_ptr_equal(ltn_chan_recv_wait(c, -1), &item);
    assert_null(ltn_chan_recv_wait(c, -1));
    assert_true(readable(c));
    ltn_chan_free(c, NULL);
}

static void free_passes_on_what_waits(void **state)
{
    (void)state;
    struct ltn_chan *c = ltn_chan_new(4, 100);
    for (int i = 0; i < 6; i++) { /* goes round the end of the ring */
        void *p = malloc(1);
        assert_non_null(p);
        assert_int_equal(ltn_chan_send(c, p, 1), 0);
        if (i < 3) {
            free(ltn_chan_recv(c));
        }
    }
    ltn_chan_free(c, free); /* the leak checker sees whether all went */
}

#define SENDERS      2
#define PER_SENDER   20000
#define SENDER_SHIFT 20

struct sender {
    struct ltn_chan *c;
    uintptr_t id;
    uint64_t refused;
};

static void *send_numbers(void *arg)
{
    struct sender *s = arg;
    for (uintptr_t i = 1; i <= PER_SENDER; i++) {
        void *item = (void *)(s->id << SENDER_SHIFT | i);
        while (ltn_chan_send(s->c, item, 8) == LTN_ERR_BUSY) {
            s->refused++;
            (void)sched_yield();
        }
    }
    return NULL;
}

static void threads_lose_and_swap_nothing(void **state)
{
    (void)state;
    struct ltn_chan *c = ltn_chan_new(16, 1000);
    struct sender senders[SENDERS] = {{.c = c, .id = 1}, {.c = c, .id = 2}};
    pthread_t threads[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, send_numbers, &senders[i]), 0);
    }
    uintptr_t last[SENDERS] = {0};
    for (int got = 0; got < SENDERS * PER_SENDER; got++) {
        uintptr_t item = (uintptr_t)ltn_chan_recv_wait(c, -1);
        uintptr_t id = item >> SENDER_SHIFT;
        assert_in_range(id, 1, SENDERS);
        assert_int_equal(item & ((1U << SENDER_SHIFT) - 1), last[id - 1] + 1);
        last[id - 1]++;
    }
    for (int i = 0; i < SENDERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    struct ltn_chan_stats s = ltn_chan_stats(c);
    assert_int_equal(s.items, 0);
    assert_int_equal(s.bytes, 0);
    assert_true(s.high_water_items <= 16);
    assert_int_equal(s.refused_total, senders[0].refused + senders[1].refused);
    ltn_chan_free(c, NULL);
}

static void *close_it(void *arg)
{
    ltn_chan_close(arg);
    return NULL;
}

static void close_wakes_a_waiting_receiver(void **state)
{
    (void)state;
    struct ltn_chan *c = ltn_chan_new(1, 1);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, close_it, c), 0);
    assert_null(ltn_chan_recv_wait(c, -1)); /* hangs, and the test with it, if close is not heard */
    (void)pthread_join(t, NULL);
    ltn_chan_free(c, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out),
        cmocka_unit_test(full_by_items),
        cmocka_unit_test(full_by_bytes),
        cmocka_unit_test(one_oversized_item_passes_when_empty),
        cmocka_unit_test(descriptor_tells_of_items_and_close),
        cmocka_unit_test(close_lets_the_rest_out),
        cmocka_unit_test(free_passes_on_what_waits),
        cmocka_unit_test(threads_lose_and_swap_nothing),
        cmocka_unit_test(close_wakes_a_waiting_receiver),
    };
    return LTN_RUN_TESTS(tests);
}
