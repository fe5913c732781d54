/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each scenario runs once to count its allocations, then once for each of them with that one
 * failing. It must report the failure, stay usable and free all it took. The linker sends the
 * library's calls here (--wrap).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/chan.h"
#include "base/map.h"
#include "cmocka_all.h"

static bool armed;
static unsigned long calls;   /* allocations since armed */
static unsigned long fail_at; /* which of them fails, from 1; 0: none */
static long live;             /* blocks taken and not given back while armed */

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static bool fails_now(void)
{
    return armed && ++calls == fail_at;
}

static void *took(void *p)
{
    live += armed && p != NULL;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : took(__real_malloc(n));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : took(__real_calloc(count, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails_now()) {
        return NULL;
    }
    void *q = __real_realloc(p, n);
    return p == NULL ? took(q) : q;
}

void __wrap_free(void *p)
{
    live -= armed && p != NULL;
    __real_free(p);
}

/* Runs the scenario with each allocation failing in turn. It returns whether it saw a failure. */
static void torture(bool (*scenario)(void), unsigned long least_calls)
{
    unsigned long total = 0;
    for (unsigned long n = 0; n <= total; n++) {
        calls = 0;
        live = 0;
        fail_at = n;
        armed = true;
        bool failed = scenario();
        armed = false;
        assert_int_equal(live, 0);
        assert_int_equal(failed, n > 0);
        if (n == 0) {
            total = calls;
            assert_true(total >= least_calls);
        }
    }
}

static bool use_arena(void)
{
    struct ltn_arena a;
    bool failed = false;
    ltn_arena_init(&a, 256, 1 << 20);
    for (size_t i = 0; i < 20; i++) {
        char *p = ltn_arena_calloc(&a, 1, 100 + 20 * i);
        failed |= p == NULL;
        if (p != NULL) {
            memset(p, 1, 100 + 20 * i);
        }
    }
    failed |= ltn_arena_strndup(&a, "text", 4) == NULL;
    ltn_arena_done(&a);
    return failed;
}

static bool use_buf(void)
{
    struct ltn_buf b;
    bool failed = false;
    ltn_buf_init(&b, 1 << 20);
    size_t good = 0;
    for (int i = 0; i < 500 && !failed; i++) {
        int rc = ltn_buf_puts(&b, "0123456789");
        assert_true(rc == 0 || rc == -ENOMEM);
        failed = rc != 0;
        good += rc == 0 ? 10 : 0;
    }
    failed |= ltn_buf_printf(&b, "%2000d", 1) < 0 || ltn_buf_reserve(&b, 9000) == NULL;
    if (failed) {
        assert_int_equal(ltn_buf_error(&b), -ENOMEM);
        assert_true(b.len >= good); /* what was there is still there */
        assert_int_equal(strlen(ltn_buf_str(&b)), b.len);
        ltn_buf_reset(&b);
        assert_int_equal(ltn_buf_putc(&b, 'x'), 0);
    }
    ltn_buf_done(&b);
    return failed;
}

static bool use_map(void)
{
    static char values[100];
    struct ltn_map m;
    bool failed = false;
    ltn_map_init(&m, 1000);
    for (uint64_t i = 0; i < 100; i++) {
        int rc = ltn_map_put_u64(&m, i, &values[i]);
        assert_true(rc == 0 || rc == -ENOMEM);
        assert_ptr_equal(ltn_map_get_u64(&m, i), rc == 0 ? &values[i] : NULL);
        failed |= rc != 0;
        if (rc == 0) { /* replacing needs no memory */
            unsigned long before = calls;
            assert_int_equal(ltn_map_put_u64(&m, i, &values[i]), 0);
            assert_int_equal(calls, before);
        }
    }
    assert_int_equal(m.len, failed ? 99 : 100);
    ltn_map_done(&m, NULL);
    return failed;
}

static bool use_chan(void)
{
    static int item;
    struct ltn_chan *c = ltn_chan_new(4, 100);
    if (c == NULL) {
        return true;
    }
    unsigned long before = calls;
    assert_int_equal(ltn_chan_send(c, &item, 1), 0);
    assert_ptr_equal(ltn_chan_recv(c), &item);
    assert_int_equal(calls, before); /* moving items needs no memory */
    ltn_chan_free(c, NULL);
    return false;
}

static void arena(void **state)
{
    (void)state;
    torture(use_arena, 10);
}

static void buf(void **state)
{
    (void)state;
    torture(use_buf, 8);
}

static void map(void **state)
{
    (void)state;
    torture(use_map, 100);
}

static void chan(void **state)
{
    (void)state;
    torture(use_chan, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena),
        cmocka_unit_test(buf),
        cmocka_unit_test(map),
        cmocka_unit_test(chan),
    };
    return LTN_RUN_TESTS(tests);
}
