/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "discover/watch.h"
#include "engine/scope.h"
#include "symbol/python.h"
#include "symbol/python_find.h"
#include "symbol/python_walk.h"

#define GPU_INTERVAL_MS 1000
#define GPU_BOX_MS      5000

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
    struct ltn_python *python;     /* the same */
    enum ltn_py_walker py_walker;
    struct ltn_errinfo last_python;
    bool by_pid;
    uint64_t attach_failures;
    struct ltn_errinfo last_failure;
};

static void on_lib_mapped(struct ltn_engine *e, const struct ltn_lib *lib)
{
    struct ltn_errinfo info = {0};
    int rc = ltn_probes_attach(e->probes, lib, &info);
    if (rc < 0 && strcmp(info.msg, e->last_failure.msg) != 0) {
        e->attach_failures++;
        e->last_failure = info;
        ltn_log_warn("%s", info.msg);
    }
}

/* Makes the frames of the process's Python visible, if it has one and is not known already. */
static void look_for_python(struct ltn_engine *e, pid_t pid)
{
    struct ltn_errinfo info = {0};
    struct ltn_python_process process;
    if (e->python == NULL || ltn_probes_get_python(e->probes, pid, &process)) {
        return;
    }
    int rc = ltn_python_find(pid, &process, &info);
    if (rc == 0) {
        process.flags |= e->py_walker == LTN_PY_USERSPACE ? LTN_PYTHON_NO_WALK : 0;
        rc = ltn_probes_set_python(e->probes, pid, &process);
    }
    if (rc < 0 && info.msg[0] != '\0' && rc != -ESRCH &&
        strcmp(info.msg, e->last_python.msg) != 0) {
        e->last_python = info;
        ltn_log_info("%s: its calls have no Python lines", info.msg);
    }
}

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
        look_for_python(e, event->proc->pid);
        on_lib_mapped(e, event->lib);
        break;
    case LTN_SCAN_LIB_GONE:
        ltn_probes_detach(e->probes, event->lib->id);
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
            on_lib_mapped(e, lib);
        }
    }
}

static int open_probes(struct ltn_engine *e, const struct ltn_engine_opts *o,
                       struct ltn_scope *scope, struct ltn_errinfo *info)
{
    struct ltn_probes_opts p = {
        .ring_bytes = o->ring_bytes,
        .sample_every = o->sample_every,
        .force_kind = o->force_kind,
        .kind = o->kind,
        .no_sched = o->no_sched,
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
    return ltn_resolver_send(e->resolver, event, proc_start_ns);
}

static void on_code(void *ctx, const void *record, size_t size)
{
    struct ltn_engine *e = ctx;
    ltn_python_add(e->python, record, size);
}

static void forget_code(void *ctx, uint64_t identity)
{
    struct ltn_engine *e = ctx;
    ltn_probes_forget_code(e->probes, identity);
}

static size_t on_python(void *ctx, const struct ltn_event_stack *event, struct ltn_stack_builder *b)
{
    struct ltn_engine *e = ctx;
    return ltn_python_frames(e->python, event, b, forget_code, e);
}

/* The line of Python that a thread stands on, which is inside one call for long. */
static void on_place(void *ctx, uint32_t pid, uint32_t tid, char *out, size_t size)
{
    struct ltn_engine *e = ctx;
    struct ltn_python_process process;
    struct ltn_stack_builder b;
    out[0] = '\0';
    if (!ltn_probes_get_python(e->probes, (pid_t)pid, &process)) {
        return;
    }
    ltn_stack_builder_init(&b);
    if (ltn_python_walk((pid_t)pid, (pid_t)tid, &process, &b) == 0 && b.count > 0) {
        struct ltn_stack_frame f = b.frames[0];
        const char *texts = ltn_buf_str(&b.texts);
        f.function = texts + (uintptr_t)f.function; /* places in texts, while it is built */
        f.file = texts + (uintptr_t)f.file;
        (void)ltn_stack_frame_text(&f, out, size);
    }
    ltn_stack_builder_done(&b);
}

static int start_resolver(struct ltn_engine *e, const struct ltn_engine_opts *o)
{
    const struct ltn_resolver_opts opts = {
        .ctx = o->sink.ctx,
        .stack = o->stack,
        .forget_ctx = e,
        .forget = forget_stack,
        .python_ctx = e,
        .python = on_python,
    };
    e->python = ltn_python_new(0);
    e->resolver = e->python != NULL ? ltn_resolver_new(&opts) : NULL;
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
    struct ltn_aggregate_opts a = {
        .maps = maps,
        .drain = e->drain,
        .gpu = e->gpu,
        .sink = o->sink,
        .stacks = {.ctx = e,
                   .stack = e->resolver != NULL ? on_stack : NULL,
                   .code = e->resolver != NULL ? on_code : NULL,
                   .place = e->resolver != NULL && e->py_walker != LTN_PY_EBPF ? on_place : NULL},
        .node = o->node,
        .window_ns = o->window_ns,
        .map_bytes = probes.map_bytes,
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
    e->py_walker = opts->py_walker;
    int rc = open_probes(e, opts, &scope, info);
    if (rc == 0) {
        e->scanner = ltn_scanner_new(&scope);
        rc = e->scanner == NULL ? ltn_errinfo_set(info, -ENOMEM, "out of memory") : 0;
    }
    if (rc == 0) {
        rc = start_threads(e, opts, info);
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
    }
    ltn_engine_tick(e);
    *ret = e;
    return 0;
}

void ltn_engine_tick(struct ltn_engine *e)
{
    int rc = ltn_scanner_scan(e->scanner, ltn_now_mono_ns(), on_scan, e);
    if (rc < 0) {
        ltn_log_warn("cannot list /proc: %s", ltn_err_str(rc));
    }
    struct ltn_probes_info probes;
    ltn_probes_info(e->probes, &probes);
    ltn_aggregate_set_probes(e->aggregate, (uint32_t)probes.functions);
}

int ltn_engine_fd(const struct ltn_engine *e)
{
    return e->watch != NULL ? ltn_watch_fd(e->watch) : -1;
}

static void poke(pid_t pid, void *arg)
{
    struct ltn_engine *e = arg;
    ltn_scanner_poke(e->scanner, pid);
}

void ltn_engine_look(struct ltn_engine *e)
{
    /* A node that starts programs all the time must not wake the agent for each. */
    const struct timespec gather = {.tv_nsec = 3 * (long)LTN_NS_PER_MS};
    (void)nanosleep(&gather, NULL);
    if (e->watch != NULL && ltn_watch_read(e->watch, poke, e) > 0) {
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
    ltn_aggregate_free(e->aggregate);
    ltn_drain_free(e->drain);
    ltn_resolver_free(e->resolver);
    ltn_python_free(e->python);
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
        .attach_failures = e->attach_failures,
    };
    if (e->resolver != NULL) {
        ltn_resolver_stats(e->resolver, &ret->symbols);
        ret->python = ltn_python_stats(e->python);
    }
    memcpy(ret->last_attach_failure, e->last_failure.msg, sizeof(ret->last_attach_failure));
}
