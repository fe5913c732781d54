/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that never return are counted too, in the kernel, although launches and copies are counted
 * when they return. Needs the right to load kernel programs. */
#include "cmocka_all.h"

#include <bpf/bpf.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "discover/elf.h"
#include "probe/ops.h"
#include "probe/probes_internal.h"

#define SKIP_CODE 77
#define JUMPS     5
#define CALLS     7

enum what { RETURN, JUMP, END_THREAD, NEST, CATCH };

static jmp_buf out;

int left_target(enum what what, size_t bytes);

/* The traced function: a way out for each case. */
__attribute__((noinline)) int left_target(enum what what, size_t bytes)
{
    int rc = 0;
    if (what == JUMP) {
        longjmp(out, 1);
    }
    if (what == END_THREAD) {
        (void)syscall(SYS_exit, 0);
    }
    if (what == NEST || (what == CATCH && setjmp(out) == 0)) {
        int (*volatile again)(enum what, size_t) = left_target;
        rc = again(JUMP, bytes);
    }
    __asm__ volatile("" : "+r"(rc));
    return rc;
}

static int (*volatile call)(enum what, size_t) = left_target;

struct fixture {
    struct ltn_probes *probes;
    enum ltn_link_kind kind;
    unsigned op;
};

static void stats_of(const struct fixture *f, struct ltn_op_stats *ret)
{
    struct ltn_op_key key = {.tgid = (uint32_t)getpid(), .op = f->op};
    memset(ret, 0, sizeof(*ret));
    (void)bpf_map_lookup_elem(ltn_probes_maps(f->probes).op_stats, &key, ret);
}

static int attach(struct fixture *f)
{
    struct ltn_elf *elf = NULL;
    struct ltn_elf_sym sym = {.name = "left_target"};
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : ltn_elf_open_fd(fd, &elf);
    if (rc == 0) {
        rc = ltn_elf_lookup(elf, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB, &sym, 1);
    }
    if (rc == 0 && sym.found) {
        struct ltn_site pick = ltn_site_pick(sym.code, sym.code_len, ltn_elf_info(elf)->machine);
        const struct ltn_link_site site = {.offset_bytes = sym.file_offset + pick.delta_bytes,
                                           .cookie = ltn_op_get(f->op)->cookie};
        rc = ltn_probes_attach_site(f->probes, fd, &site);
    }
    ltn_elf_free(elf);
    (void)close(fd);
    return rc;
}

static int open_probes(void **state, enum ltn_link_kind kind, const char *op)
{
    static struct fixture f;
    struct ltn_errinfo info = {0};
    const struct ltn_probes_opts opts = {.force_kind = true, .kind = kind, .no_sched = true};
    f = (struct fixture){.kind = kind, .op = ltn_op_find(op)};
    *state = &f;
    int rc = ltn_probes_new(&opts, &f.probes, &info);
    if (rc < 0) {
        f.probes = NULL; /* this kernel has no links of the kind */
        return 0;
    }
    return attach(&f);
}

static int open_launch(void **state)
{
    return open_probes(state, LTN_LINK_SESSION, "cudaLaunchKernel");
}

static int open_launch_multi(void **state)
{
    return open_probes(state, LTN_LINK_MULTI, "cudaLaunchKernel");
}

static int open_copy(void **state)
{
    return open_probes(state, LTN_LINK_SESSION, "cudaMemsetAsync");
}

static int close_probes(void **state)
{
    ltn_probes_free(((struct fixture *)*state)->probes);
    return 0;
}

static void jumped_out_of(void **state)
{
    struct fixture *f = *state;
    static struct ltn_op_stats s;
    if (f->probes == NULL) {
        skip();
    }
    for (volatile int i = 0; i < JUMPS; i++) {
        if (setjmp(out) == 0) {
            (void)call(JUMP, 0);
        }
    }
    for (int i = 0; i < CALLS; i++) {
        (void)call(RETURN, 0);
    }
    stats_of(f, &s);
    assert_int_equal(s.calls, JUMPS + CALLS);
    assert_int_equal(s.returns, CALLS);
    assert_int_equal(s.nested, 0);
}

/* Both frames of a nested call are left at once. */
static void jumped_out_of_two(void **state)
{
    struct fixture *f = *state;
    static struct ltn_op_stats s;
    if (f->probes == NULL) {
        skip();
    }
    if (setjmp(out) == 0) {
        (void)call(NEST, 0);
    }
    (void)call(RETURN, 0);
    stats_of(f, &s);
    assert_int_equal(s.calls, 3);
    assert_int_equal(s.returns, 1);
    assert_int_equal(s.nested, 1);
}

/* The inner call is left, the outer one returns. */
static void caught_inside(void **state)
{
    struct fixture *f = *state;
    static struct ltn_op_stats s;
    if (f->probes == NULL) {
        skip();
    }
    (void)call(CATCH, 0);
    stats_of(f, &s);
    assert_int_equal(s.calls, 2);
    assert_int_equal(s.returns, 1);
    assert_int_equal(s.nested, 1);
}

static void *end_inside(void *arg)
{
    (void)call(RETURN, 0);
    (void)call(END_THREAD, 0);
    return arg;
}

static void ended_inside(void **state)
{
    struct fixture *f = *state;
    static struct ltn_op_stats s;
    pthread_t thread;
    if (f->probes == NULL) {
        skip();
    }
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(pthread_create(&thread, NULL, end_inside, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    stats_of(f, &s);
    assert_int_equal(s.calls, 2 * CALLS);
    assert_int_equal(s.returns, CALLS);
}

static void counted_once_when_it_returns(void **state)
{
    struct fixture *f = *state;
    static struct ltn_op_stats s;
    if (f->probes == NULL) {
        skip();
    }
    for (int i = 0; i < CALLS; i++) {
        (void)call(RETURN, 0);
        stats_of(f, &s);
        assert_int_equal(s.calls, i + 1);
        assert_int_equal(s.returns, i + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(jumped_out_of, open_launch, close_probes),
        cmocka_unit_test_setup_teardown(jumped_out_of_two, open_launch, close_probes),
        cmocka_unit_test_setup_teardown(caught_inside, open_launch, close_probes),
        cmocka_unit_test_setup_teardown(ended_inside, open_launch, close_probes),
        cmocka_unit_test_setup_teardown(ended_inside, open_launch_multi, close_probes),
        cmocka_unit_test_setup_teardown(counted_once_when_it_returns, open_copy, close_probes),
    };
    struct ltn_probes *probe = NULL;
    struct ltn_errinfo info = {0};
    const struct ltn_probes_opts opts = {.no_sched = true};
    if (ltn_probes_new(&opts, &probe, &info) < 0) {
        (void)printf("SKIP: %s\n", info.msg);
        return SKIP_CODE;
    }
    ltn_probes_free(probe);
    return LTN_RUN_TESTS(tests);
}
