/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a probe costs the traced program, in nanoseconds per call: without a probe, with programs
 * that do nothing (the floor), and with Lanterne's own. Every case has a function of its own, all
 * are attached for the whole run, and the rounds go through all cases in turn, so that what happens
 * on the machine hits all alike. The best round counts.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/text.h"
#include "bpf/event.h"
#include "discover/elf.h"
#include "probe/ops.h"
#include "probe/probes_internal.h"

#include "empty.skel.h"

#define DEFAULT_ROUNDS 60
#define DEFAULT_CALLS  5000
#define WARM_UP        200
#define RING_BYTES     (16U * 1024 * 1024) /* holds the records of a round without a wake-up */
#define SLOW_NS        1000000             /* as the agent sets it: no call here is that slow */
#define NAME_BYTES     32

enum tracer {
    NOT_TRACED,
    EMPTY_ENTRY,   /* perf link, entry only */
    EMPTY_PERF,    /* perf links, entry and return */
    EMPTY_MULTI,   /* multi links, entry and return */
    EMPTY_SESSION, /* one session link */
    LANTERNE,
};

enum floor { FLOOR_NONE, FLOOR_PERF, FLOOR_MULTI, FLOOR_SESSION, FLOOR_NESTED, FLOORS };

struct bench_case {
    const char *text;
    const char *shape; /* bench_<shape>_<index> */
    enum tracer tracer;
    enum ltn_link_kind kind;
    const char *op;       /* name of the op whose cookie the probe gets */
    const char *inner_op; /* shape "outer" only */
    enum floor is_floor;  /* this case is that floor */
    enum floor against;   /* the floor it is measured by */
    bool at_entry;        /* on the first instruction, whatever it is */
    unsigned frames;      /* records carry their stack, of at least that many frames; 0: none */
};

#define SES LTN_LINK_SESSION
#define MUL LTN_LINK_MULTI
#define PRF LTN_LINK_PERF

/* At most as many as targets.S has functions of a shape. */
static const struct bench_case cases[] = {
    {"not traced", "push", NOT_TRACED, PRF, NULL, NULL, 0, 0, false, 0},
    {"empty program, entry only, perf", "push", EMPTY_ENTRY, PRF, NULL, NULL, 0, 0, false, 0},
    {"empty pair, perf", "push", EMPTY_PERF, PRF, NULL, NULL, FLOOR_PERF, FLOOR_PERF, false, 0},
    {"empty pair, multi", "push", EMPTY_MULTI, MUL, NULL, NULL, FLOOR_MULTI, FLOOR_MULTI, false, 0},
    {"empty session", "push", EMPTY_SESSION, SES, NULL, NULL, FLOOR_SESSION, FLOOR_SESSION, false,
     0},
    {"launch, session", "push", LANTERNE, SES, "cudaLaunchKernel", NULL, 0, FLOOR_SESSION, false,
     0},
    {"launch, multi", "push", LANTERNE, MUL, "cudaLaunchKernel", NULL, 0, FLOOR_MULTI, false, 0},
    {"launch, perf", "push", LANTERNE, PRF, "cudaLaunchKernel", NULL, 0, FLOOR_PERF, false, 0},
    {"copy, session", "push", LANTERNE, SES, "cudaMemcpyAsync", NULL, 0, FLOOR_SESSION, false, 0},
    {"copy, multi", "push", LANTERNE, MUL, "cudaMemcpyAsync", NULL, 0, FLOOR_MULTI, false, 0},
    {"copy, perf", "push", LANTERNE, PRF, "cudaMemcpyAsync", NULL, 0, FLOOR_PERF, false, 0},
    {"event record, entry only, session", "push", LANTERNE, SES, "cudaEventRecord", NULL, 0,
     FLOOR_SESSION, false, 0},
    {"event query, session", "push", LANTERNE, SES, "cudaEventQuery", NULL, 0, FLOOR_SESSION, false,
     0},
    {"sync, session", "push", LANTERNE, SES, "cudaStreamSynchronize", NULL, 0, FLOOR_SESSION, false,
     0},
    {"sync, multi", "push", LANTERNE, MUL, "cudaStreamSynchronize", NULL, 0, FLOOR_MULTI, false, 0},
    {"sync, perf", "push", LANTERNE, PRF, "cudaStreamSynchronize", NULL, 0, FLOOR_PERF, false, 0},
    {"empty sessions, runtime over driver", "outer", EMPTY_SESSION, SES, NULL, NULL, FLOOR_NESTED,
     FLOOR_NESTED, false, 0},
    {"launch, runtime over driver, session", "outer", LANTERNE, SES, "cudaLaunchKernel",
     "cuLaunchKernel", 0, FLOOR_NESTED, false, 0},
    {"launch behind endbr64, session", "landing", LANTERNE, SES, "cudaLaunchKernel", NULL, 0,
     FLOOR_SESSION, false, 0},
    {"the same, on the endbr64", "landing", LANTERNE, SES, "cudaLaunchKernel", NULL, 0,
     FLOOR_SESSION, true, 0},
    {"launch behind libcuda's compare, session", "thunk", LANTERNE, SES, "cuLaunchKernel", NULL, 0,
     FLOOR_SESSION, false, 0},
    {"the same, on the compare", "thunk", LANTERNE, SES, "cuLaunchKernel", NULL, 0, FLOOR_SESSION,
     true, 0},
    {"sync with its stack, 5 frames", "push", LANTERNE, SES, "cudaStreamSynchronize", NULL, 0,
     FLOOR_SESSION, false, 5},
    {"sync with its stack, 20 frames", "push", LANTERNE, SES, "cudaStreamSynchronize", NULL, 0,
     FLOOR_SESSION, false, 20},
    {"sync with its stack, 60 frames", "push", LANTERNE, SES, "cudaStreamSynchronize", NULL, 0,
     FLOOR_SESSION, false, 60},
};
#define CASES LTN_ARRAY_SIZE(cases)

typedef int (*target_fn)(void *, size_t, size_t, int, void *, void *, void *, void *, void *);

struct bench {
    int fd; /* the library */
    struct ltn_elf *elf;
    void *handle;
    struct empty *empty;
    struct ltn_probes *probes[3]; /* by link kind; NULL where the kernel has no such links */
    struct ring_buffer *rings[3];
    struct bpf_link *perf_links[8];
    size_t perf_link_count;
    target_fn fn[CASES]; /* NULL: the case cannot run here */
    double best_ns[CASES];
    double sum_ns[CASES];
    unsigned rounds;
    unsigned calls;
    size_t cpu;
    const char *only; /* part of a case's text; NULL = all */
    bool json;
    bool check; /* the promises */
};

/* ---- attaching ---- */

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
    (void)level;
    (void)fmt;
    (void)ap;
    return 0;
}

/* Where the agent would put the probe of this function, or its first byte. */
static int find_site(struct bench *b, const char *name, bool at_entry, struct ltn_link_site *ret)
{
    struct ltn_elf_sym sym = {.name = name};
    int rc = ltn_elf_lookup(b->elf, LTN_ELF_DYNSYM, &sym, 1);
    if (rc < 0 || !sym.found) {
        return rc < 0 ? rc : LTN_ERR_NOT_FOUND;
    }
    struct ltn_site site = ltn_site_pick(sym.code, sym.code_len, ltn_elf_info(b->elf)->machine);
    ret->offset_bytes = sym.file_offset + (at_entry ? 0 : site.delta_bytes);
    return 0;
}

static int attach_perf(struct bench *b, struct bpf_program *prog, const struct ltn_link_site *site,
                       bool at_return)
{
    LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = at_return);
    struct bpf_link *link =
        bpf_program__attach_uprobe_opts(prog, -1, BENCH_TARGETS, (size_t)site->offset_bytes, &opts);
    if (link == NULL) {
        return -errno;
    }
    if (b->perf_link_count == LTN_ARRAY_SIZE(b->perf_links)) {
        (void)bpf_link__destroy(link);
        return LTN_ERR_COUNT;
    }
    b->perf_links[b->perf_link_count++] = link;
    return 0;
}

/* Links made with the system call stay until the program ends. */
static int attach_young(struct bench *b, struct bpf_program *prog, enum ltn_link_kind kind,
                        const struct ltn_link_site *site, bool at_return)
{
    int rc = ltn_link_create(bpf_program__fd(prog), kind, b->fd, site, 1, at_return);
    return rc < 0 ? rc : 0;
}

static int attach_to(struct bench *b, const struct bench_case *c, const char *name, const char *op)
{
    struct ltn_link_site site = {0};
    int rc = find_site(b, name, c->at_entry, &site);
    if (rc < 0) {
        return rc;
    }
    switch (c->tracer) {
    case NOT_TRACED:
        return 0;
    case EMPTY_ENTRY:
        return attach_perf(b, b->empty->progs.empty_enter, &site, false);
    case EMPTY_PERF:
        rc = attach_perf(b, b->empty->progs.empty_return, &site, true);
        return rc < 0 ? rc : attach_perf(b, b->empty->progs.empty_enter, &site, false);
    case EMPTY_MULTI:
        rc = attach_young(b, b->empty->progs.empty_multi_return, MUL, &site, true);
        return rc < 0 ? rc : attach_young(b, b->empty->progs.empty_multi_enter, MUL, &site, false);
    case EMPTY_SESSION:
        return attach_young(b, b->empty->progs.empty_session, SES, &site, false);
    case LANTERNE:
        if (b->probes[c->kind] == NULL) {
            return -EOPNOTSUPP;
        }
        site.cookie = ltn_op_get(ltn_op_find(op))->cookie;
        return ltn_probes_attach_site(b->probes[c->kind], b->fd, &site);
    }
    return -EINVAL;
}

static void prepare_case(struct bench *b, size_t i)
{
    const struct bench_case *c = &cases[i];
    char name[NAME_BYTES];
    if (b->only != NULL && strstr(c->text, b->only) == NULL) {
        return;
    }
    (void)snprintf(name, sizeof(name), "bench_%s_%zu", c->shape, i);
    int rc = attach_to(b, c, name, c->op);
    void *fn = dlsym(b->handle, name);
    if (rc == 0 && strcmp(c->shape, "outer") == 0) {
        (void)snprintf(name, sizeof(name), "bench_inner_%zu", i);
        rc = attach_to(b, c, name, c->inner_op);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "left out: %s: %s\n", c->text, ltn_err_str(rc));
        return;
    }
    memcpy(&b->fn[i], &fn, sizeof(fn));
}

static int keep(void *ctx, void *data, size_t size)
{
    (void)ctx;
    (void)data;
    (void)size;
    return 0;
}

static void open_lanterne(struct bench *b, enum ltn_link_kind kind)
{
    struct ltn_errinfo info = {0};
    const struct ltn_probes_opts opts = {
        .force_kind = true, .kind = kind, .ring_bytes = RING_BYTES};
    if (ltn_probes_new(&opts, &b->probes[kind], &info) < 0) {
        (void)fprintf(stderr, "left out: links of kind %s: %s\n", ltn_link_kind_name(kind),
                      info.msg);
        b->probes[kind] = NULL;
        return;
    }
    struct ltn_probe_maps maps = ltn_probes_maps(b->probes[kind]);
    uint64_t slow = SLOW_NS;
    for (uint32_t op = 0; op < LTN_OP_COUNT; op++) {
        (void)bpf_map_update_elem(maps.slow_ns, &op, &slow, BPF_ANY);
    }
    b->rings[kind] = ring_buffer__new(maps.calls, keep, NULL, NULL);
}

static int open_all(struct bench *b)
{
    (void)libbpf_set_print(quiet);
    b->fd = open(BENCH_TARGETS, O_RDONLY | O_CLOEXEC);
    if (b->fd < 0) {
        return -errno;
    }
    int rc = ltn_elf_open_fd(b->fd, &b->elf);
    if (rc < 0) {
        return rc;
    }
    b->handle = dlopen(BENCH_TARGETS, RTLD_NOW | RTLD_LOCAL);
    b->empty = empty__open();
    if (b->handle == NULL || b->empty == NULL) {
        return -EINVAL;
    }
    (void)bpf_program__set_expected_attach_type(b->empty->progs.empty_session,
                                                (enum bpf_attach_type)ltn_link_attach_type(SES));
    (void)bpf_program__set_expected_attach_type(b->empty->progs.empty_multi_enter,
                                                (enum bpf_attach_type)ltn_link_attach_type(MUL));
    (void)bpf_program__set_expected_attach_type(b->empty->progs.empty_multi_return,
                                                (enum bpf_attach_type)ltn_link_attach_type(MUL));
    rc = empty__load(b->empty);
    if (rc < 0) {
        return rc;
    }
    for (int k = SES; k <= PRF; k++) {
        open_lanterne(b, (enum ltn_link_kind)k);
    }
    for (size_t i = 0; i < CASES; i++) {
        prepare_case(b, i);
    }
    return 0;
}

/* ---- measuring ---- */

static __attribute__((noinline)) double measure(target_fn fn, unsigned calls)
{
    uint64_t from = ltn_now_mono_ns();
    for (unsigned i = 0; i < calls; i++) {
        (void)fn(NULL, 4096, 4096, 1, NULL, NULL, NULL, NULL, NULL);
    }
    return (double)(ltn_now_mono_ns() - from) / calls;
}

/* The same from as many calls inside each other as the stack shall have frames. */
static __attribute__((noinline)) double measure_deep(target_fn fn, unsigned calls, unsigned frames)
{
    double ns = frames > 1 ? measure_deep(fn, calls, frames - 1) : measure(fn, calls);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return ns;
}

static void set_stacks(struct bench *b, const struct bench_case *c)
{
    if (c->tracer == LANTERNE) {
        ltn_probes_set_off(b->probes[c->kind], c->frames > 0 ? 0 : LTN_DOWN_STACKS);
    }
}

static void empty_rings(struct bench *b)
{
    for (size_t k = 0; k < LTN_ARRAY_SIZE(b->rings); k++) {
        if (b->rings[k] != NULL) {
            (void)ring_buffer__consume(b->rings[k]);
        }
    }
}

static void *run_rounds(void *arg)
{
    struct bench *b = arg;
    for (unsigned r = 0; r < b->rounds; r++) {
        for (size_t k = 0; k < CASES; k++) {
            size_t i = (k + r) % CASES;
            if (b->fn[i] == NULL) {
                continue;
            }
            set_stacks(b, &cases[i]);
            unsigned frames = cases[i].frames > 0 ? cases[i].frames : 1;
            (void)measure_deep(b->fn[i], WARM_UP, frames);
            double ns = measure_deep(b->fn[i], b->calls, frames);
            b->sum_ns[i] += ns;
            if (b->best_ns[i] == 0 || ns < b->best_ns[i]) {
                b->best_ns[i] = ns;
            }
            empty_rings(b);
        }
    }
    return NULL;
}

/* The rounds run on a thread of their own, alone on the last CPU this program may use. */
static int run_pinned(struct bench *b)
{
    cpu_set_t may;
    cpu_set_t one;
    pthread_attr_t attr;
    pthread_t thread;
    if (sched_getaffinity(0, sizeof(may), &may) != 0) {
        return -errno;
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        b->cpu = CPU_ISSET(cpu, &may) ? cpu : b->cpu;
    }
    CPU_ZERO(&one);
    CPU_SET(b->cpu, &one);
    (void)pthread_attr_init(&attr);
    int rc = pthread_attr_setaffinity_np(&attr, sizeof(one), &one);
    if (rc == 0) {
        rc = pthread_create(&thread, &attr, run_rounds, b);
    }
    (void)pthread_attr_destroy(&attr);
    if (rc == 0) {
        rc = pthread_join(thread, NULL);
    }
    return -rc;
}

/* ---- printing ---- */

/* Every probe must have counted what was called: a wrong count would make the price worthless. */
static int check_counts(const struct bench *b)
{
    int wrong = 0;
    static struct ltn_op_stats s;
    for (int k = SES; k <= PRF; k++) {
        uint64_t want[LTN_OP_COUNT] = {0};
        uint64_t per_case = (uint64_t)b->rounds * (b->calls + WARM_UP);
        for (size_t i = 0; i < CASES; i++) {
            if (b->fn[i] != NULL && cases[i].tracer == LANTERNE && (int)cases[i].kind == k) {
                want[ltn_op_find(cases[i].op)] += per_case;
                want[cases[i].inner_op != NULL ? ltn_op_find(cases[i].inner_op) : 0] +=
                    cases[i].inner_op != NULL ? per_case : 0;
            }
        }
        for (uint32_t op = 1; op < LTN_OP_COUNT; op++) {
            struct ltn_op_key key = {.tgid = (uint32_t)getpid(), .op = op};
            if (want[op] == 0) {
                continue;
            }
            bool timed = (LTN_COOKIE_FLAGS(ltn_op_get(op)->cookie) & LTN_OP_ENTRY_ONLY) == 0;
            int rc = bpf_map_lookup_elem(ltn_probes_maps(b->probes[k]).op_stats, &key, &s);
            if (rc != 0 || s.calls != want[op] || s.returns != (timed ? want[op] : 0)) {
                (void)fprintf(stderr,
                              "%s, %s links: %" PRIu64 " calls made, %" PRIu64
                              " entries and %" PRIu64 " returns counted\n",
                              ltn_op_get(op)->name, ltn_link_kind_name((enum ltn_link_kind)k),
                              want[op], s.calls, s.returns);
                wrong++;
            }
        }
    }
    return wrong;
}

static void print_all(const struct bench *b)
{
    struct utsname u = {0};
    double floors[FLOORS] = {0};
    (void)uname(&u);
    for (size_t i = 0; i < CASES; i++) {
        floors[cases[i].is_floor] = b->best_ns[i];
    }
    if (!b->json) {
        (void)printf("Linux %s %s, CPU %zu, best of %u rounds of %u calls\n", u.release, u.machine,
                     b->cpu, b->rounds, b->calls);
        (void)printf("%-42s %9s %9s %9s\n", "", "best ns", "mean ns", "x floor");
    }
    for (size_t i = 0; i < CASES; i++) {
        if (b->fn[i] == NULL) {
            continue;
        }
        double floor_ns = cases[i].against != FLOOR_NONE ? floors[cases[i].against] : 0;
        double ratio = floor_ns > 0 ? b->best_ns[i] / floor_ns : 0;
        double mean = b->sum_ns[i] / b->rounds;
        if (b->json) {
            (void)printf("{\"case\":\"%s\",\"best_ns\":%.1f,\"mean_ns\":%.1f,\"ratio\":%.3f}\n",
                         cases[i].text, b->best_ns[i], mean, ratio);
        } else if (ratio > 0) {
            (void)printf("%-42s %9.0f %9.0f %9.2f\n", cases[i].text, b->best_ns[i], mean, ratio);
        } else {
            (void)printf("%-42s %9.0f %9.0f\n", cases[i].text, b->best_ns[i], mean);
        }
    }
}

/* The case of this text, in ns; 0 when it did not run. */
static double best_of(const struct bench *b, const char *text)
{
    for (size_t i = 0; i < CASES; i++) {
        if (strcmp(cases[i].text, text) == 0) {
            return b->best_ns[i];
        }
    }
    return 0.0;
}

/* What docs/performance.md promises. */
static int check_promises(const struct bench *b)
{
    static const struct {
        const char *what;
        const char *against;
        double most;
    } promises[] = {
        {"launch, session", "empty session", 1.25},
        {"launch, multi", "empty pair, multi", 1.25},
        {"launch, perf", "empty pair, perf", 1.25},
        {"launch behind endbr64, session", "launch, session", 1.3},
        {"launch behind libcuda's compare, session", "launch, session", 1.3},
    };
    int broken = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(promises); i++) {
        double got = best_of(b, promises[i].what);
        double base = best_of(b, promises[i].against);
        if (got > 0.0 && base > 0.0 && got > base * promises[i].most) {
            (void)fprintf(stderr, "%s: %.2f x '%s', promised are %.2f\n", promises[i].what,
                          got / base, promises[i].against, promises[i].most);
            broken++;
        }
    }
    return broken == 0 ? 0 : -ERANGE;
}

static int usage(FILE *to)
{
    (void)fputs("usage: probe_overhead [--rounds N] [--calls N] [--case TEXT] [--check] [--json]\n"
                "  --check  exit code 1 when a promise of docs/performance.md is broken\n",
                to);
    return to == stdout ? 0 : 2;
}

static int parse(struct bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        uint64_t n = 0;
        if (strcmp(argv[i], "--json") == 0) {
            b->json = true;
            continue;
        }
        if (strcmp(argv[i], "--check") == 0) {
            b->check = true;
            continue;
        }
        if (strcmp(argv[i], "--case") == 0 && i + 1 < argc) {
            b->only = argv[++i];
            continue;
        }
        if (i + 1 == argc || !ltn_parse_u64(argv[i + 1], &n) || n == 0 || n > 1000000) {
            return -EINVAL;
        }
        if (strcmp(argv[i], "--rounds") == 0) {
            b->rounds = (unsigned)n;
        } else if (strcmp(argv[i], "--calls") == 0) {
            b->calls = (unsigned)n;
        } else {
            return -EINVAL;
        }
        i++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench b = {.rounds = DEFAULT_ROUNDS, .calls = DEFAULT_CALLS};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        return usage(stdout);
    }
    if (parse(&b, argc, argv) < 0) {
        return usage(stderr);
    }
    int rc = open_all(&b);
    if (rc == 0) {
        rc = run_pinned(&b);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "probe_overhead: cannot run here: %s\n", ltn_err_str(rc));
        return 3;
    }
    print_all(&b);
    rc = check_counts(&b);
    if (b.check && check_promises(&b) < 0) {
        rc = -ERANGE;
    }
    for (size_t i = 0; i < b.perf_link_count; i++) {
        (void)bpf_link__destroy(b.perf_links[i]);
    }
    for (size_t k = 0; k < LTN_ARRAY_SIZE(b.probes); k++) {
        ring_buffer__free(b.rings[k]);
        ltn_probes_free(b.probes[k]);
    }
    empty__destroy(b.empty);
    ltn_elf_free(b.elf);
    return rc == 0 ? 0 : 1;
}
