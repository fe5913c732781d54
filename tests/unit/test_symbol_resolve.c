/* SPDX-License-Identifier: Apache-2.0 */
/* The resolver on this very process, whose addresses are known. */
#include "cmocka_all.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/clock.h"
#include "discover/proc.h"
#include "symbol/resolve.h"

#define KEPT 8

struct sink {
    const struct ltn_stack *stacks[KEPT];
    size_t count;
    size_t forgotten;
    uint64_t last_forgotten;
    int answer;
};

static int take(void *ctx, const struct ltn_stack *s)
{
    struct sink *k = ctx;
    if (k->answer == 0) {
        assert_true(k->count < KEPT);
        k->stacks[k->count++] = ltn_stack_ref(s);
    }
    return k->answer;
}

static void forget(void *ctx, uint64_t stack_id)
{
    struct sink *k = ctx;
    k->forgotten++;
    k->last_forgotten = stack_id;
}

/* Frames with the flag 1 are of code that is not known yet. */
static size_t python(void *ctx, const struct ltn_event_stack *e, struct ltn_stack_builder *b)
{
    (void)ctx;
    size_t unknown = 0;
    for (uint32_t i = 0; i < e->python_count; i++) {
        ltn_stack_builder_add(b, &(struct ltn_stack_frame){.kind = LTN_FRAME_PYTHON,
                                                           .function = "train",
                                                           .file = "t.py",
                                                           .line = e->python[i].offset});
        unknown += e->python[i].flags & 1;
    }
    return unknown;
}

/* Two functions that nothing exports; the second is what the interpreter's loop is called. */
__attribute__((noinline)) static int known_function(volatile int *x)
{
    *x += 1;
    return *x * 3;
}
int _PyEval_EvalFrameDefault(volatile int *x);
__attribute__((noinline)) int _PyEval_EvalFrameDefault(volatile int *x)
{
    *x += 2;
    return *x * 5;
}

static uint64_t inside(const void *p)
{
    return (uint64_t)(uintptr_t)p + 4; /* as a return address: just after a call in there */
}

#define INSIDE(function) inside((const void *)(uintptr_t)(function))

static struct ltn_event_stack event(uint64_t id)
{
    return (struct ltn_event_stack){
        .hdr = {.type = LTN_EVENT_STACK, .tgid = (uint32_t)getpid(), .time_ns = ltn_now_mono_ns()},
        .stack_id = id};
}

static uint64_t own_start(void)
{
    struct ltn_proc p;
    assert_int_equal(ltn_proc_read_stat(getpid(), &p), 0);
    return p.start_unix_ns;
}

static struct ltn_resolver_stats run(struct sink *k, uint32_t rate, const struct ltn_event_stack *e,
                                     size_t n, uint64_t start)
{
    const struct ltn_resolver_opts opts = {.ctx = k,
                                           .stack = take,
                                           .forget_ctx = k,
                                           .forget = forget,
                                           .python = python,
                                           .stacks_per_second = rate};
    struct ltn_resolver_stats stats;
    struct ltn_resolver *r = ltn_resolver_new(&opts);
    assert_non_null(r);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ltn_resolver_send(r, &e[i], start), 0);
    }
    assert_int_equal(ltn_resolver_start(r), 0);
    ltn_resolver_stop(r);
    ltn_resolver_stats(r, &stats);
    ltn_resolver_free(r);
    return stats;
}

static void drop(struct sink *k)
{
    for (size_t i = 0; i < k->count; i++) {
        ltn_stack_unref(k->stacks[i]);
    }
}

static void test_places(void **state)
{
    (void)state;
    volatile int x = 0;
    struct sink k = {0};
    struct ltn_event_stack e = event(77);
    e.native_count = 5;
    e.native[0] = INSIDE(known_function);
    e.native[1] = INSIDE(dlsym(RTLD_NEXT, "getpid"));
    e.native[2] = getauxval(AT_SYSINFO_EHDR) + 0x100;
    e.native[3] = (uint64_t)(uintptr_t)&x; /* a stack's own address holds no code: the end */
    e.native[4] = INSIDE(known_function);
    assert_int_equal(known_function(&x), 3);
    struct ltn_resolver_stats s = run(&k, 0, &e, 1, own_start());
    assert_int_equal(s.resolved_total, 1);
    assert_int_equal(s.modules.failed_total, 0);
    assert_int_equal(k.count, 1);
    const struct ltn_stack *got = k.stacks[0];
    assert_int_equal(got->stack_id, 77);
    assert_int_equal(got->pid, getpid());
    assert_int_equal(got->count, 3);
    assert_true(got->truncated);
    assert_string_equal(got->frames[0].function, "known_function");
    assert_string_equal(got->frames[1].function, "getpid");
    assert_non_null(strstr(got->frames[1].file, "libc.so.6"));
    assert_int_equal(strlen(got->frames[1].build_id), 40);
    assert_string_equal(got->frames[2].file, "[vdso]");
    drop(&k);
}

static void test_once_each(void **state)
{
    (void)state;
    struct sink k = {0};
    struct ltn_event_stack e[3] = {event(1), event(1), event(2)};
    for (int i = 0; i < 3; i++) {
        e[i].native_count = 1;
        e[i].native[0] = INSIDE(known_function);
    }
    struct ltn_resolver_stats s = run(&k, 0, e, 3, own_start());
    assert_int_equal(s.received_total, 3);
    assert_int_equal(s.resolved_total, 2);
    assert_int_equal(s.known_total, 1);
    assert_int_equal(s.modules.opened_total, 1);
    assert_int_equal(k.count, 2);
    assert_true(k.stacks[0]->content == k.stacks[1]->content);
    assert_int_equal(k.forgotten, 0);
    drop(&k);
}

static void test_what_is_not_taken_comes_again(void **state)
{
    (void)state;
    struct sink k = {.answer = -1};
    struct ltn_event_stack e[2] = {event(1), event(2)};
    for (int i = 0; i < 2; i++) {
        e[i].native_count = 1;
        e[i].native[0] = INSIDE(known_function);
    }
    struct ltn_resolver_stats s = run(&k, 0, e, 1, own_start());
    assert_int_equal(s.refused_total, 1);
    assert_int_equal(k.last_forgotten, 1);
    k = (struct sink){0};
    s = run(&k, 1, e, 2, own_start()); /* one a second */
    assert_int_equal(s.resolved_total, 1);
    assert_int_equal(s.refused_total, 1);
    assert_int_equal(k.forgotten, 1);
    assert_int_equal(k.last_forgotten, 2);
    drop(&k);
}

/* A library that comes right after the maps were read is known to the next stack. */
static void test_a_library_that_came_late(void **state)
{
    (void)state;
    struct sink k = {0};
    const struct ltn_resolver_opts opts = {.ctx = &k, .stack = take};
    struct ltn_resolver_stats stats = {0};
    struct ltn_event_stack e = event(1);
    struct ltn_resolver *r = ltn_resolver_new(&opts);
    assert_non_null(r);
    assert_int_equal(ltn_resolver_start(r), 0);
    e.native_count = 1;
    e.native[0] = INSIDE(known_function);
    assert_int_equal(ltn_resolver_send(r, &e, own_start()), 0);
    for (uint64_t until = ltn_now_mono_ns() + 10 * LTN_NS_PER_S;
         stats.resolved_total == 0 && ltn_now_mono_ns() < until;) {
        (void)usleep(200);
        ltn_resolver_stats(r, &stats);
    }
    assert_int_equal(stats.resolved_total, 1);
    void *lib = dlopen("libm.so.6", RTLD_NOW);
    assert_non_null(lib);
    e = event(2);
    e.native_count = 1;
    e.native[0] = INSIDE(dlsym(lib, "cbrt"));
    assert_int_equal(ltn_resolver_send(r, &e, own_start()), 0);
    ltn_resolver_stop(r);
    ltn_resolver_free(r);
    assert_int_equal(k.count, 2);
    assert_non_null(strstr(k.stacks[1]->frames[0].file, "libm.so.6"));
    assert_non_null(strstr(k.stacks[1]->frames[0].function, "cbrt"));
    drop(&k);
    (void)dlclose(lib);
}

/* Another process of the same number: nothing is made up. */
static void test_gone(void **state)
{
    (void)state;
    struct sink k = {0};
    struct ltn_event_stack e = event(1);
    e.native_count = 1;
    e.native[0] = INSIDE(known_function);
    struct ltn_resolver_stats s = run(&k, 0, &e, 1, own_start() - 1000000000);
    assert_int_equal(s.empty_total, 1);
    assert_int_equal(k.count, 0);
    e.hdr.tgid = 0x7ffffff0;
    s = run(&k, 0, &e, 1, own_start());
    assert_int_equal(s.empty_total, 1);
    assert_int_equal(k.count, 0);
}

/* Python frames stand for the interpreter and all that lies outside of it. */
static void test_python_takes_the_interpreters_place(void **state)
{
    (void)state;
    volatile int x = 0;
    struct sink k = {0};
    struct ltn_event_stack e[2] = {event(1), event(2)};
    assert_int_equal(_PyEval_EvalFrameDefault(&x), 10);
    for (int i = 0; i < 2; i++) {
        e[i].python_count = 2;
        e[i].python[0].offset = 10;
        e[i].python[1].offset = 20;
        e[i].native_count = 3;
        e[i].native[0] = INSIDE(known_function);
        e[i].native[1] = i == 0 ? INSIDE(_PyEval_EvalFrameDefault) : INSIDE(known_function);
        e[i].native[2] = INSIDE(known_function);
    }
    (void)run(&k, 0, e, 2, own_start());
    assert_int_equal(k.count, 2);
    const struct ltn_stack *s = k.stacks[0];
    assert_int_equal(s->count, 3);
    assert_string_equal(s->frames[0].function, "known_function");
    assert_int_equal(s->frames[1].kind, LTN_FRAME_PYTHON);
    assert_int_equal(s->frames[1].line, 10);
    assert_int_equal(s->frames[2].line, 20);
    assert_false(s->truncated);
    /* Where the interpreter was not found among the native frames they stand before them. */
    assert_int_equal(k.stacks[1]->count, 5);
    assert_int_equal(k.stacks[1]->frames[3].line, 10);
    drop(&k);
}

static void test_unknown_python_comes_again_but_not_for_ever(void **state)
{
    (void)state;
    struct sink k = {0};
    struct ltn_event_stack e[6];
    for (int i = 0; i < 6; i++) {
        e[i] = event(7);
        e[i].python_count = 1;
        e[i].python[0].flags = i < 5;
    }
    struct ltn_resolver_stats stats = run(&k, 0, e, 6, own_start());
    /* Handed on each time it is asked for again, which is three times; then it is left as it is. */
    assert_int_equal(stats.resolved_total, 4);
    assert_int_equal(k.count, 4);
    assert_int_equal(k.forgotten, 3);
    assert_int_equal(stats.known_total, 2);
    drop(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_once_each),
        cmocka_unit_test(test_what_is_not_taken_comes_again),
        cmocka_unit_test(test_a_library_that_came_late),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_python_takes_the_interpreters_place),
        cmocka_unit_test(test_unknown_python_comes_again_but_not_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
