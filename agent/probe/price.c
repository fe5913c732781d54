/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/price.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpf/event.h"
#include "probe/ops.h"
#include "probe/probes_internal.h"

#define ROUNDS        8
#define CALLS         250
#define CALLS_STEPPED 25
#define ENTRIES_MAX   64 /* that measuring can leave behind, and more */
/* Where nothing could be measured: a virtual machine of 2024 (docs/performance.md). */
#define USUAL_PAIR_NS  1010.0
#define USUAL_ENTRY_NS 650.0
#define USUAL_STEP_NS  9300.0

/* The first begins as most functions of CUDA do, so that its probe costs what theirs cost; the
 * first instruction of the second is one that the kernel cannot do by itself. */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".p2align 6\n"
        ".globl ltn_price_target\n"
        ".hidden ltn_price_target\n"
        ".type ltn_price_target, @function\n"
        "ltn_price_target:\n"
        "    push %rbp\n"
        "    mov %rsp, %rbp\n"
        "    xor %eax, %eax\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size ltn_price_target, . - ltn_price_target\n"
        ".p2align 6\n"
        ".globl ltn_price_stepped\n"
        ".hidden ltn_price_stepped\n"
        ".type ltn_price_stepped, @function\n"
        "ltn_price_stepped:\n"
        "    xor %eax, %eax\n"
        "    ret\n"
        ".size ltn_price_stepped, . - ltn_price_stepped\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".p2align 6\n"
        ".globl ltn_price_target\n"
        ".hidden ltn_price_target\n"
        ".type ltn_price_target, %function\n"
        "ltn_price_target:\n"
        "    stp x29, x30, [sp, #-16]!\n"
        "    mov w0, #0\n"
        "    ldp x29, x30, [sp], #16\n"
        "    ret\n"
        ".size ltn_price_target, . - ltn_price_target\n"
        ".p2align 6\n"
        ".globl ltn_price_stepped\n"
        ".hidden ltn_price_stepped\n"
        ".type ltn_price_stepped, %function\n"
        "ltn_price_stepped:\n"
        "    mov w0, #0\n"
        "    ret\n"
        ".size ltn_price_stepped, . - ltn_price_stepped\n"
        ".popsection\n");
#endif
int ltn_price_target(void);
int ltn_price_stepped(void);

/* The best of some rounds: what else happens on the machine only ever adds. */
static double ns_per_call(int (*fn)(void), int calls)
{
    double best = 0.0;
    (void)fn();
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t from = ltn_now_mono_ns();
        for (int i = 0; i < calls; i++) {
            (void)fn();
        }
        double ns = (double)(ltn_now_mono_ns() - from) / calls;
        best = r == 0 || ns < best ? ns : best;
    }
    return best;
}

static bool was_counted(const struct ltn_probe_maps *maps, uint32_t tgid)
{
    struct ltn_op_stats *s = calloc(1, sizeof(*s));
    struct ltn_op_key key = {.tgid = tgid, .op = LTN_OP_NONE};
    bool counted = s != NULL && bpf_map_lookup_elem(maps->op_stats, &key, s) == 0 && s->returns > 0;
    free(s);
    return counted;
}

static void zero_counters(int fd, uint32_t count)
{
    int cpus = libbpf_num_possible_cpus();
    uint64_t *zeros = cpus > 0 ? calloc((size_t)cpus, sizeof(*zeros)) : NULL;
    for (uint32_t i = 0; zeros != NULL && i < count; i++) {
        (void)bpf_map_update_elem(fd, &i, zeros, BPF_ANY);
    }
    free(zeros);
}

static int discard(void *ctx, void *data, size_t size)
{
    (void)ctx;
    (void)data;
    (void)size;
    return 0;
}

/* Empties a map; key is room for one of its keys. */
static void empty_map(int fd, void *key)
{
    for (int i = 0; i < ENTRIES_MAX && bpf_map_get_next_key(fd, NULL, key) == 0; i++) {
        (void)bpf_map_delete_elem(fd, key);
    }
}

static void empty_ring(int fd)
{
    struct ring_buffer *records = ring_buffer__new(fd, discard, NULL, NULL);
    if (records != NULL) {
        (void)ring_buffer__consume(records);
        ring_buffer__free(records);
    }
}

/* As if it had never been measured. Nothing else is attached yet, so all there is comes from here,
 * also under the number that the kernel knows this process by where that is another. */
static void wipe(const struct ltn_probe_maps *maps)
{
    struct ltn_op_key op;
    uint32_t tgid;
    empty_map(maps->op_stats, &op);
    empty_map(maps->processes, &tgid);
    empty_ring(maps->calls);
    empty_ring(maps->critical);
    zero_counters(maps->seen, LTN_SEENS);
    zero_counters(maps->drops, LTN_DROPS);
}

/* A probe on one of the two functions, for as long as it is measured. */
static int attach(struct ltn_probes *p, int fd, int (*fn)(void))
{
    int (*volatile address)(void) = fn;
    struct ltn_link_site site = {
        .cookie = LTN_COOKIE(LTN_OP_NONE, LTN_CLASS_LAUNCH, LTN_DECODE_NONE, 0, LTN_ARG_NONE, 0)};
    int rc = ltn_probes_own_offset((uintptr_t)address, &site.offset_bytes);
    return rc < 0 ? rc : ltn_probes_attach_site(p, fd, &site);
}

static void measure_pair(struct ltn_probes *p, int fd, uint32_t tgid, struct ltn_probe_price *ret)
{
    struct ltn_probe_maps maps = ltn_probes_maps(p);
    double bare_ns = ns_per_call(ltn_price_target, CALLS);
    if (attach(p, fd, ltn_price_target) != 0) {
        return;
    }
    double pair = ns_per_call(ltn_price_target, CALLS) - bare_ns;
    if (was_counted(&maps, tgid) && pair > 0.0) {
        ltn_probes_set_off(p, LTN_DOWN_LAUNCH);
        double entry = ns_per_call(ltn_price_target, CALLS) - bare_ns;
        ltn_probes_set_off(p, 0);
        ret->pair_ns = pair;
        ret->entry_ns = entry > 0.0 && entry < pair ? entry : pair;
        ret->measured = true;
    }
    ltn_probes_detach(p, LTN_PROBES_OWN_FILE);
}

static void measure_step(struct ltn_probes *p, int fd, struct ltn_probe_price *ret)
{
    struct ltn_probes_info info;
    ltn_probes_info(p, &info);
    bool slow_to_close = info.kind == LTN_LINK_PERF; /* and the figure is much the same */
    if (!ret->measured || slow_to_close || attach(p, fd, ltn_price_stepped) != 0) {
        return;
    }
    double stepped = ns_per_call(ltn_price_stepped, CALLS_STEPPED);
    ret->step_ns = stepped > ret->pair_ns ? stepped - ret->pair_ns : 0.0;
    ltn_probes_detach(p, LTN_PROBES_OWN_FILE);
}

void ltn_probes_measure_price(struct ltn_probes *p, struct ltn_probe_price *ret)
{
    *ret = (struct ltn_probe_price){
        .pair_ns = USUAL_PAIR_NS, .entry_ns = USUAL_ENTRY_NS, .step_ns = USUAL_STEP_NS};
    const uint64_t none[16] = {0}; /* at least as long as a value of the map */
    uint32_t tgid = (uint32_t)getpid();
    struct ltn_probe_maps maps = ltn_probes_maps(p);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    /* An entry in the table of processes keeps this one from being reported as newly seen. */
    (void)bpf_map_update_elem(maps.processes, &tgid, none, BPF_ANY);
    if (ltn_probes_add_pid(p, (pid_t)tgid) == 0) {
        measure_pair(p, fd, tgid, ret);
        measure_step(p, fd, ret);
    }
    (void)ltn_probes_del_pid(p, (pid_t)tgid);
    wipe(&maps);
    (void)close(fd);
}

/* ---- statistics of the kernel ---- */

int ltn_probes_stats_on(void)
{
    int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
    return fd < 0 ? -errno : fd;
}

int ltn_probes_runtime(const struct ltn_probes *p, struct ltn_probe_runtime *ret)
{
    struct ltn_probe_runtime sum = {0};
    struct bpf_program *prog;
    bpf_object__for_each_program(prog, ltn_probes_object(p))
    {
        struct bpf_prog_info info = {0};
        uint32_t len = sizeof(info);
        int fd = bpf_program__fd(prog);
        if (fd < 0) {
            continue; /* not loaded on this kernel */
        }
        if (bpf_obj_get_info_by_fd(fd, &info, &len) < 0) {
            return -errno;
        }
        bool calls = strncmp(bpf_program__name(prog), "call_", 5) == 0;
        *(calls ? &sum.calls_ns : &sum.others_ns) += info.run_time_ns;
    }
    *ret = sum;
    return 0;
}
