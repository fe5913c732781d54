/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "discover/watch.h"
#include "engine/attach.h"
#include "engine/price.h"
#include "engine/scope.h"
#include "engine/pythons.h"
#include "engine/silence.h"

#define GPU_INTERVAL_MS 1000
#define GPU_BOX_MS      5000
/* Processes looked at one by one after a notice; when there are more, all are scanned. */
#define LOOKS_MAX 128
/* Programs started that are looked into at once, a second; the others wait for the scan. */
#define PROGRAMS_A_SECOND 200

struct ltn_engine {
    struct ltn_scanner *scanner;
    struct ltn_watch *watch; /* NULL when not permitted */
    struct ltn_probes *probes;
    struct ltn_gpu *gpu;
    struct ltn_drain *drain;
    bool drain_runs;
    struct ltn_aggregate *aggregate;
    bool aggregate_runs;
    struct ltn_resolver *resolver; /* NULL without stacks */
    struct ltn_pythons pythons;
    bool by_pid;
    struct ltn_price price;
    struct ltn_attach attach;
    struct ltn_silence *silence;
    uint64_t mapped_ns; /* when what is being looked at was mapped; 0 = not known */
    uint64_t programs_second;
    unsigned programs;   /* looked into in that second */
    uint64_t watch_lost; /* as last seen */
};

static void trace_pid(struct ltn_engine *e, pid_t pid)
{
    int rc = e->by_pid ? ltn_probes_add_pid(e->probes, pid) : 0;
    if (rc < 0) {
        ltn_log_warn("process %d cannot be added to the traced ones: %s", (int)pid,
                     ltn_err_str(rc));
    }
}

static void on_scan(const struct ltn_scan_event *event, void *arg)
{
    struct ltn_engine *e = arg;
    switch (event->kind) {
    case LTN_SCAN_PROC_NEW:
        trace_pid(e, event->proc->pid);
        break;
    case LTN_SCAN_PROC_GONE:
        if (e->by_pid) {
            (void)ltn_probes_del_pid(e->probes, event->proc->pid);
        }
        break;
    case LTN_SCAN_LIB_MAPPED:
        ltn_pythons_look(&e->pythons, event->proc->pid);
        ltn_attach_lib(&e->attach, event->lib, e->mapped_ns);
        break;
    case LTN_SCAN_LIB_GONE:
        ltn_attach_gone(&e->attach, event->lib);
        break;
    default:
        break;
    }
}

static void attach_given(struct ltn_engine *e, const struct ltn_engine_opts *o)
{
    for (size_t i = 0; i < o->lib_count; i++) {
        struct ltn_lib *lib = NULL;
        int rc = ltn_libs_give(ltn_scanner_libs(e->scanner), o->libs[i], &lib);
        if (rc < 0) {
            ltn_log_warn("--cuda-lib %s: %s", o->libs[i], ltn_err_str(rc));
        } else {
            ltn_attach_lib(&e->attach, lib, 0);
        }
    }
}

static int open_probes(struct ltn_engine *e, const struct ltn_engine_opts *o,
                       struct ltn_scope *scope, struct ltn_errinfo *info)
{
    struct ltn_probes_opts p = {
        .ring_bytes = o->ring_bytes,
        .sample_every = o->sample_every,
        .keep_all = o->keep_all,
        .force_kind = o->force_kind,
        .kind = o->kind,
        .no_sched = o->no_sched,
        .host_off = o->host_off,
        .files_by_syscall = o->files_by_syscall,
        .open_slow_ns = o->open_slow_ns,
        .no_stacks = o->no_stacks || o->stack == NULL,
    };
    if (scope->pid_count > 0) {
        p.scope_mode |= LTN_TRACE_PIDS;
        e->by_pid = true;
    }
    if (scope->by_uid) {
        p.scope_mode |= LTN_TRACE_UID;
        p.scope_uid = scope->uid;
    }
    if (o->cgroup != NULL && o->cgroup[0] != '\0') {
        struct ltn_cgroup_ref ref;
        int rc = ltn_cgroup_resolve(o->cgroup, &ref, info);
        if (rc < 0) {
            return rc;
        }
        memcpy(scope->cgroup_path, ref.path, sizeof(scope->cgroup_path));
        p.scope_mode |= LTN_TRACE_CGROUP;
        p.scope_cgroup_id = ref.id;
        p.scope_cgroup_level = ref.level;
    }
    return ltn_probes_new(&p, &e->probes, info);
}

static struct ltn_gpu *open_gpu(void)
{
    struct ltn_gpu_provider provider;
    if (ltn_gpu_nvml_provider(NULL, &provider) != 0) {
        return NULL;
    }
    return ltn_gpu_new(&provider, GPU_INTERVAL_MS, GPU_BOX_MS);
}

static void forget_stack(void *ctx, uint64_t stack_id)
{
    struct ltn_engine *e = ctx;
    ltn_probes_forget_stack(e->probes, stack_id);
}

static int on_stack(void *ctx, const struct ltn_event_stack *event, uint64_t proc_start_ns)
{
    struct ltn_engine *e = ctx;
    ltn_pythons_stack(&e->pythons, event, proc_start_ns);
    return ltn_resolver_send(e->resolver, event, proc_start_ns);
}

static void on_code(void *ctx, const void *record, size_t size)
{
    struct ltn_engine *e = ctx;
    ltn_python_add(e->pythons.names, record, size);
}

static void on_place(void *ctx, uint32_t pid, uint32_t tid, char *out, size_t size)
{
    struct ltn_engine *e = ctx;
    ltn_pythons_place(&e->pythons, pid, tid, out, size);
}

static int start_resolver(struct ltn_engine *e, const struct ltn_engine_opts *o)
{
    const struct ltn_resolver_opts opts = {
        .ctx = o->sink.ctx,
        .stack = o->stack,
        .forget_ctx = e,
        .forget = forget_stack,
        .python_ctx = &e->pythons,
        .python = ltn_pythons_frames,
    };
    int rc = ltn_pythons_init(&e->pythons, e->probes, o->py_walker);
    e->resolver = rc == 0 ? ltn_resolver_new(&opts) : NULL;
    return e->resolver == NULL ? -ENOMEM : ltn_resolver_start(e->resolver);
}

static int start_threads(struct ltn_engine *e, const struct ltn_engine_opts *o,
                         struct ltn_errinfo *info)
{
    struct ltn_probes_info probes;
    ltn_probes_info(e->probes, &probes);
    struct ltn_probe_maps maps = ltn_probes_maps(e->probes);
    e->gpu = o->no_gpu ? NULL : open_gpu();
    e->drain = ltn_drain_new(maps.calls, maps.critical);
    int rc = probes.stacks ? start_resolver(e, o) : 0;
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "cannot start a thread: %s", ltn_err_str(rc));
    }
    if (e->drain == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "cannot map the ring buffers: out of memory");
    }
    if (!o->keep_all) {
        ltn_drain_control(e->drain, ltn_probes_thin(e->probes));
    }
    struct ltn_aggregate_opts a = {
        .maps = maps,
        .drain = e->drain,
        .gpu = e->gpu,
        .sink = o->sink,
        .stacks = {.ctx = e,
                   .stack = e->resolver != NULL ? on_stack : NULL,
                   .code = e->resolver != NULL ? on_code : NULL,
                   .place = e->resolver != NULL && o->py_walker != LTN_PY_EBPF ? on_place : NULL},
        .node = o->node,
        .window_ns = o->window_ns,
        .map_bytes = probes.map_bytes,
        .deadband = o->deadband,
        .heartbeat_ns = o->heartbeat_ns,
        .set_slow = true,
    };
    e->aggregate = ltn_aggregate_new(&a);
    if (e->aggregate == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    rc = ltn_drain_start(e->drain);
    e->drain_runs = rc == 0;
    if (rc == 0) {
        rc = ltn_aggregate_start(e->aggregate);
        e->aggregate_runs = rc == 0;
    }
    return rc < 0 ? ltn_errinfo_set(info, rc, "cannot start a thread: %s", ltn_err_str(rc)) : 0;
}

int ltn_engine_start(const struct ltn_engine_opts *opts, struct ltn_engine **ret,
                     struct ltn_errinfo *info)
{
    struct ltn_engine *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    struct ltn_scope scope = opts->scope;
    int rc = open_probes(e, opts, &scope, info);
    if (rc == 0) {
        rc = ltn_price_init(&e->price, e->probes, opts->budget, opts->keep_all);
        rc = rc < 0 ? ltn_errinfo_set(info, rc, "out of memory") : 0;
    }
    if (rc == 0) {
        e->scanner = ltn_scanner_new(&scope);
        rc = e->scanner == NULL ? ltn_errinfo_set(info, -ENOMEM, "out of memory") : 0;
    }
    if (rc == 0) {
        rc = start_threads(e, opts, info);
    }
    if (rc == 0) {
        e->attach.probes = e->probes;
        e->silence = ltn_silence_new(e->scanner, e->probes, e->aggregate);
        rc = e->silence == NULL ? ltn_errinfo_set(info, -ENOMEM, "out of memory") : 0;
    }
    if (rc < 0) {
        ltn_engine_stop(e);
        return rc;
    }
    for (size_t i = 0; i < scope.pid_count; i++) {
        struct ltn_proc proc;
        if (ltn_proc_read_stat(scope.pids[i], &proc) == -ESRCH) {
            ltn_log_warn("--pid: there is no process %d; it is traced should it come",
                         (int)scope.pids[i]);
        }
        trace_pid(e, scope.pids[i]);
    }
    attach_given(e, opts);
    rc = ltn_watch_new(&e->watch);
    if (rc < 0) {
        ltn_log_info("new mappings are found by the scan each second only (perf events: %s)",
                     ltn_err_str(rc));
        ltn_scanner_look_at_all(e->scanner, true);
    }
    ltn_engine_tick(e);
    *ret = e;
    return 0;
}

static void say_coverage(struct ltn_engine *e)
{
    struct ltn_probes_info probes;
    struct ltn_scan_stats scan;
    struct ltn_silence_stats silence;
    struct ltn_resolver_stats symbols = {0};
    ltn_probes_info(e->probes, &probes);
    ltn_scanner_stats(e->scanner, &scan);
    ltn_silence_stats(e->silence, &silence);
    if (e->resolver != NULL) {
        ltn_resolver_stats(e->resolver, &symbols);
    }
    const struct ltn_coverage now = {
        .functions = (uint32_t)probes.functions,
        .files = (uint32_t)probes.files,
        .files_unattached = (uint32_t)e->attach.unattached_count,
        .hidden_processes = (uint32_t)scan.procs_hidden,
        .silent_processes = silence.silent_now,
        .silent_total = silence.silent_total,
        .attach_delay_max_ns = e->attach.delay_max_ns,
        .stacks_refused = symbols.refused_total,
    };
    ltn_aggregate_set_coverage(e->aggregate, &now);
}

void ltn_engine_tick(struct ltn_engine *e)
{
    uint64_t now = ltn_now_mono_ns();
    e->mapped_ns = 0;
    uint64_t lost = e->watch != NULL ? ltn_watch_lost(e->watch) : 0;
    bool missed = lost != e->watch_lost; /* notices that nobody will repeat */
    if (missed) {
        ltn_scanner_look_at_all(e->scanner, true);
        e->watch_lost = lost;
    }
    int rc = ltn_scanner_scan(e->scanner, now, on_scan, e);
    if (missed) {
        ltn_scanner_look_at_all(e->scanner, false);
    }
    if (rc < 0) {
        ltn_log_warn("cannot list /proc: %s", ltn_err_str(rc));
    }
    ltn_attach_again(&e->attach, ltn_scanner_libs(e->scanner), now);
    ltn_silence_tick(e->silence);
    say_coverage(e);
    ltn_price_tick(&e->price, e->probes, e->drain, e->aggregate);
}

int ltn_engine_fd(const struct ltn_engine *e)
{
    return e->watch != NULL ? ltn_watch_fd(e->watch) : -1;
}

/* Processes to look at, each once, and when the first of its files was mapped. */
struct looks {
    struct ltn_engine *e;
    size_t count;
    bool over;
    struct {
        pid_t pid;
        uint64_t mapped_ns;
    } at[LOOKS_MAX];
};

/* A machine that starts programs all the time must not keep the agent busy. */
static bool may_look_into(struct ltn_engine *e, const struct ltn_watch_event *event)
{
    uint64_t second = event->mapped_ns / LTN_NS_PER_S;
    if (second != e->programs_second) {
        e->programs_second = second;
        e->programs = 0;
    }
    return ++e->programs <= PROGRAMS_A_SECOND;
}

static void on_mapping(const struct ltn_watch_event *event, void *arg)
{
    struct looks *l = arg;
    for (size_t i = 0; i < l->count; i++) {
        if (l->at[i].pid == event->pid) {
            return;
        }
    }
    if (event->program && ltn_scanner_program_is_plain(l->e->scanner, event->pid)) {
        return;
    }
    if (event->program && !may_look_into(l->e, event)) {
        ltn_scanner_poke(l->e->scanner, event->pid); /* the next scan does */
        return;
    }
    if (l->count == LOOKS_MAX) {
        ltn_scanner_poke(l->e->scanner, event->pid);
        l->over = true;
        return;
    }
    l->at[l->count].pid = event->pid;
    l->at[l->count++].mapped_ns = event->mapped_ns;
}

void ltn_engine_look(struct ltn_engine *e)
{
    struct looks l = {.e = e};
    /* A node that starts programs all the time must not wake the agent for each. */
    const struct timespec gather = {.tv_nsec = 3 * (long)LTN_NS_PER_MS};
    (void)nanosleep(&gather, NULL);
    if (e->watch == NULL) {
        return;
    }
    (void)ltn_watch_read(e->watch, on_mapping, &l);
    for (size_t i = 0; i < l.count; i++) {
        e->mapped_ns = l.at[i].mapped_ns;
        ltn_scanner_look(e->scanner, l.at[i].pid, ltn_now_mono_ns(), on_scan, e);
    }
    e->mapped_ns = 0;
    if (l.over) {
        ltn_engine_tick(e);
    }
}

void ltn_engine_stop(struct ltn_engine *e)
{
    if (e == NULL) {
        return;
    }
    if (e->drain_runs) {
        ltn_drain_stop(e->drain);
    }
    if (e->aggregate_runs) {
        ltn_aggregate_stop(e->aggregate);
    }
    if (e->resolver != NULL) {
        ltn_resolver_stop(e->resolver);
    }
    ltn_silence_free(e->silence);
    ltn_aggregate_free(e->aggregate);
    ltn_drain_free(e->drain);
    ltn_resolver_free(e->resolver);
    ltn_pythons_done(&e->pythons);
    ltn_price_done(&e->price);
    ltn_probes_free(e->probes);
    ltn_scanner_free(e->scanner);
    ltn_watch_free(e->watch);
    (void)ltn_gpu_free(e->gpu);
    free(e);
}

const struct ltn_probes *ltn_engine_probes(const struct ltn_engine *e)
{
    return e->probes;
}

struct ltn_scanner *ltn_engine_scanner(struct ltn_engine *e)
{
    return e->scanner;
}

void ltn_engine_stats(struct ltn_engine *e, struct ltn_engine_stats *ret)
{
    *ret = (struct ltn_engine_stats){
        .aggregate = ltn_aggregate_stats(e->aggregate),
        .drain = ltn_drain_stats(e->drain),
        .price = e->price.health,
        .attach_failures = e->attach.failures_total,
    };
    if (e->resolver != NULL) {
        ltn_resolver_stats(e->resolver, &ret->symbols);
        ret->python = ltn_python_stats(e->pythons.names);
    }
    ltn_silence_stats(e->silence, &ret->silence);
}

const struct ltn_attach *ltn_engine_attach(const struct ltn_engine *e)
{
    return &e->attach;
}
