// SPDX-License-Identifier: Apache-2.0
// Driver: modules, functions, launches, capture and graphs.
#include "cuda_api.h"

#include <stdlib.h>
#include <string.h>

// Function handles. A name that begins with "simKernel" takes its duration from its first
// parameter; one that begins with "ncclDevKernel" carries a collective in its "extra" buffer; all
// others run for the default time.
struct sim_function {
    char name[64];
    uint32_t timed, coll;
};

static struct sim_function g_functions[4096];
static _Atomic uint32_t g_function_count;
static pthread_mutex_t g_function_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult function_get(CUfunction *ret, const char *name)
{
    CUresult rc = CUDA_ENOMEM;
    if (ret == NULL || name == NULL)
        return CUDA_EINVAL;
    pthread_mutex_lock(&g_function_lock);
    uint32_t n = atomic_load(&g_function_count), i = 0;
    while (i < n && strncmp(g_functions[i].name, name, sizeof(g_functions[i].name) - 1) != 0)
        i++;
    if (i < sizeof(g_functions) / sizeof(g_functions[0])) {
        if (i == n) {
            size_t len = strnlen(name, sizeof(g_functions[i].name) - 1);
            memcpy(g_functions[i].name, name, len);
            g_functions[i].timed = strncmp(name, "simKernel", 9) == 0;
            g_functions[i].coll = strncmp(name, "ncclDevKernel", 13) == 0;
            atomic_store(&g_function_count, n + 1);
        }
        *ret = &g_functions[i];
        rc = CUDA_OK;
    }
    pthread_mutex_unlock(&g_function_lock);
    return rc;
}

static const struct sim_function *function_of(CUfunction f)
{
    uintptr_t at = (uintptr_t)f, from = (uintptr_t)g_functions;
    if (at < from || at >= from + sizeof(g_functions) || (at - from) % sizeof(g_functions[0]) != 0)
        return NULL;
    return f;
}

static int g_module; // modules and libraries have no content: their address is their handle

#define LOAD(name, params)                                                                         \
    CU_FN(name) params                                                                             \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        if (ret == NULL)                                                                           \
            return CUDA_EINVAL;                                                                    \
        *ret = &g_module;                                                                          \
        return CUDA_OK;                                                                            \
    }
LOAD(cuModuleLoad, (void **ret, const char *file __attribute__((unused))))
LOAD(cuModuleLoadData, (void **ret, const void *image __attribute__((unused))))
LOAD(cuModuleLoadFatBinary, (void **ret, const void *image __attribute__((unused))))

CU_FN(cuModuleLoadDataEx)(void **ret, const void *image, unsigned n, void *options, void **values)
{
    SIM_COUNT(cuModuleLoadDataEx);
    (void)image;
    (void)n;
    (void)options;
    (void)values;
    *ret = &g_module;
    return CUDA_OK;
}

CU_FN(cuModuleUnload)(CUmodule module)
{
    SIM_COUNT(cuModuleUnload);
    return module == NULL ? CUDA_EINVAL : CUDA_OK;
}

CU_FN(cuModuleGetFunction)(CUfunction *ret, CUmodule module, const char *name)
{
    SIM_COUNT(cuModuleGetFunction);
    (void)module;
    return function_get(ret, name);
}

CU_FN(cuLibraryLoadData)
(void **ret, const void *code, void *jit, void **jit_values, unsigned jit_n, void *options,
 void **values, unsigned n)
{
    SIM_COUNT(cuLibraryLoadData);
    (void)code;
    (void)jit;
    (void)jit_values;
    (void)jit_n;
    (void)options;
    (void)values;
    (void)n;
    *ret = &g_module;
    return CUDA_OK;
}

CU_FN(cuLibraryUnload)(void *library)
{
    SIM_COUNT(cuLibraryUnload);
    return library == NULL ? CUDA_EINVAL : CUDA_OK;
}

CU_FN(cuLibraryGetKernel)(CUfunction *ret, void *library, const char *name)
{
    SIM_COUNT(cuLibraryGetKernel);
    (void)library;
    return function_get(ret, name);
}

CU_FN(cuKernelGetFunction)(CUfunction *ret, CUfunction kernel)
{
    SIM_COUNT(cuKernelGetFunction);
    if (function_of(kernel) == NULL)
        return CUDA_EHANDLE;
    *ret = kernel;
    return CUDA_OK;
}

CU_FN(cuFuncLoad)(CUfunction f)
{
    SIM_COUNT(cuFuncLoad);
    return function_of(f) == NULL ? CUDA_EHANDLE : CUDA_OK;
}

static CUresult coll_entry(struct sim_entry *e, void **extra)
{
    const struct sim_coll_launch *launch = extra == NULL || extra[0] != (void *)1 ? NULL : extra[1];
    if (launch == NULL || launch->magic != SIM_COLL_LAUNCH_MAGIC || launch->n == 0 ||
        launch->n > SIM_MAX_GROUP_OPS)
        return CUDA_EINVAL;
    e->type = SIM_E_COLL;
    e->u.coll.n = launch->n;
    e->u.coll.ops = malloc(launch->n * sizeof(*e->u.coll.ops));
    if (e->u.coll.ops == NULL)
        return CUDA_ENOMEM;
    memcpy(e->u.coll.ops, launch->ops, launch->n * sizeof(*e->u.coll.ops));
    for (uint32_t i = 0; i < launch->n;
         i++) { // addresses that are no device memory are not touched
        struct sim_coll_op *op = &e->u.coll.ops[i];
        if (op->send != NULL && !sim_mem_valid((uint64_t)(uintptr_t)op->send, 8))
            op->send = NULL;
        if (op->recv != NULL && !sim_mem_valid((uint64_t)(uintptr_t)op->recv, 8))
            op->recv = NULL;
    }
    return CUDA_OK;
}

static CUresult launch(struct sim_stream *s, CUfunction f, void **params, void **extra)
{
    const struct sim_function *fn = function_of(f);
    if (s == NULL)
        return CUDA_ECTX;
    if (fn == NULL)
        return CUDA_EHANDLE;
    struct sim_entry e = {.type = SIM_E_KERNEL, .dur_ns = sim_set.default_kernel_ns};
    if (fn->coll) {
        CUresult rc = coll_entry(&e, extra);
        if (rc != CUDA_OK)
            return rc;
    } else if (fn->timed && params != NULL && params[0] != NULL) {
        memcpy(&e.dur_ns, params[0], sizeof(e.dur_ns));
    }
    return sim_push(s, &e, NULL);
}

static CUresult do_cuLaunchKernel(int pt, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                  unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                  CUstream stream, void **params, void **extra)
{
    (void)shared;
    if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0)
        return CUDA_EINVAL;
    return launch(sim_stream_of(stream, pt), f, params, extra);
}
CU_PT(cuLaunchKernel, _ptsz,
      (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
       unsigned shared, CUstream stream, void **params, void **extra),
      f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)

static CUresult do_cuLaunchCooperativeKernel(int pt, CUfunction f, unsigned gx, unsigned gy,
                                             unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                             unsigned shared, CUstream stream, void **params)
{
    return do_cuLaunchKernel(pt, f, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}
CU_PT(cuLaunchCooperativeKernel, _ptsz,
      (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
       unsigned shared, CUstream stream, void **params),
      f, gx, gy, gz, bx, by, bz, shared, stream, params)

struct sim_launch_config {
    unsigned grid[3], block[3];
    unsigned shared, pad;
    CUstream stream;
    void *attrs;
    unsigned attr_count;
};
_Static_assert(sizeof(struct sim_launch_config) == 56, "CUlaunchConfig");

static CUresult do_cuLaunchKernelEx(int pt, const struct sim_launch_config *config, CUfunction f,
                                    void **params, void **extra)
{
    if (config == NULL)
        return CUDA_EINVAL;
    return launch(sim_stream_of(config->stream, pt), f, params, extra);
}
CU_PT(cuLaunchKernelEx, _ptsz,
      (const struct sim_launch_config *config, CUfunction f, void **params, void **extra), config,
      f, params, extra)

struct sim_launch_params { // CUDA_LAUNCH_PARAMS
    CUfunction f;
    unsigned grid[3], block[3];
    unsigned shared, pad;
    CUstream stream;
    void **params;
};
_Static_assert(sizeof(struct sim_launch_params) == 56, "CUDA_LAUNCH_PARAMS");

CU_FN(cuLaunchCooperativeKernelMultiDevice)
(struct sim_launch_params *list, unsigned count, unsigned flags)
{
    SIM_COUNT(cuLaunchCooperativeKernelMultiDevice);
    CUresult rc = list == NULL || count == 0 || flags > 3 ? CUDA_EINVAL : CUDA_OK;
    for (unsigned i = 0; i < count && rc == CUDA_OK; i++)
        rc = launch(sim_stream_of(list[i].stream, 0), list[i].f, list[i].params, NULL);
    return rc;
}

static CUresult do_cuStreamBeginCapture_v2(int pt, CUstream stream, int mode)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL)
        return CUDA_ECTX;
    if (s->legacy)
        return 900;
    if (s->capture != NULL)
        return 401;
    s->capture_mode = (uint32_t)mode;
    s->capture = calloc(1, sizeof(*s->capture));
    return s->capture == NULL ? CUDA_ENOMEM : CUDA_OK;
}
CU_PT(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, int mode), stream, mode)

// Goes on recording into a graph that the caller has.
static CUresult do_cuStreamBeginCaptureToGraph(int pt, CUstream stream, CUgraph graph,
                                               const void *dependencies, const void *data,
                                               size_t count, int mode)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    (void)dependencies;
    (void)data;
    (void)count;
    if (s == NULL || graph == NULL)
        return s == NULL ? CUDA_ECTX : CUDA_EINVAL;
    if (s->legacy || s->capture != NULL)
        return s->legacy ? 900 : 401;
    s->capture_mode = (uint32_t)mode;
    s->capture = graph;
    return CUDA_OK;
}
CU_PT(cuStreamBeginCaptureToGraph, _ptsz,
      (CUstream stream, CUgraph graph, const void *dependencies, const void *data, size_t count,
       int mode),
      stream, graph, dependencies, data, count, mode)

static CUresult do_cuStreamEndCapture(int pt, CUstream stream, CUgraph *graph)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL)
        return CUDA_ECTX;
    if (s->capture == NULL)
        return 401;
    *graph = s->capture;
    sim_capture_end(s);
    return CUDA_OK;
}
CU_PT(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), stream, graph)

static CUresult do_cuStreamIsCapturing(int pt, CUstream stream, int *status)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL)
        return CUDA_ECTX;
    *status = s->capture != NULL;
    return CUDA_OK;
}
CU_PT(cuStreamIsCapturing, _ptsz, (CUstream stream, int *status), stream, status)

CU_FN(cuGraphCreate)(CUgraph *graph, unsigned flags)
{
    SIM_COUNT(cuGraphCreate);
    (void)flags;
    *graph = calloc(1, sizeof(struct sim_graph));
    return *graph == NULL ? CUDA_ENOMEM : CUDA_OK;
}

static void graph_free(struct sim_graph *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        sim_entry_release(&g->nodes[i]);
    free(g->nodes);
    free(g);
}

CU_FN(cuGraphDestroy)(CUgraph graph)
{
    SIM_COUNT(cuGraphDestroy);
    if (graph == NULL)
        return CUDA_EINVAL;
    graph_free(graph);
    return CUDA_OK;
}

CU_FN(cuGraphExecDestroy)(CUgraphExec exec)
{
    SIM_COUNT(cuGraphExecDestroy);
    if (exec == NULL)
        return CUDA_EINVAL;
    graph_free(exec);
    return CUDA_OK;
}

static CUresult entry_clone(struct sim_entry *e)
{
    if (e->type != SIM_E_COLL)
        return CUDA_OK;
    struct sim_coll_op *ops = malloc(e->u.coll.n * sizeof(*ops));
    if (ops == NULL)
        return CUDA_ENOMEM;
    memcpy(ops, e->u.coll.ops, e->u.coll.n * sizeof(*ops));
    e->u.coll.ops = ops;
    return CUDA_OK;
}

// The executable form: runs of kernels become one entry of the summed time.
static CUresult graph_instantiate(CUgraphExec *ret, const struct sim_graph *g)
{
    if (ret == NULL || g == NULL)
        return CUDA_EINVAL;
    struct sim_graph *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return CUDA_ENOMEM;
    x->nodes = calloc(g->n + 1, sizeof(*x->nodes));
    if (x->nodes == NULL) {
        free(x);
        return CUDA_ENOMEM;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        struct sim_entry *last = x->n > 0 ? &x->nodes[x->n - 1] : NULL;
        if (last != NULL && last->type == SIM_E_KERNEL && g->nodes[i].type == SIM_E_KERNEL) {
            last->dur_ns += g->nodes[i].dur_ns;
            continue;
        }
        x->nodes[x->n] = g->nodes[i];
        if (entry_clone(&x->nodes[x->n]) != CUDA_OK) {
            graph_free(x);
            return CUDA_ENOMEM;
        }
        x->n++;
    }
    x->kernels = g->kernels;
    x->copies = g->copies;
    sim_burn_ns(20000 + 500ull * g->n);
    *ret = x;
    return CUDA_OK;
}

CU_FN(cuGraphInstantiateWithFlags)(CUgraphExec *exec, CUgraph graph, uint64_t flags)
{
    SIM_COUNT(cuGraphInstantiateWithFlags);
    (void)flags;
    return graph_instantiate(exec, graph);
}

CU_FN(cuGraphInstantiate)
(CUgraphExec *exec, CUgraph graph, void **error_node, char *log, size_t log_bytes)
{
    SIM_COUNT(cuGraphInstantiate);
    (void)error_node;
    if (log != NULL && log_bytes > 0)
        log[0] = '\0';
    return graph_instantiate(exec, graph);
}

CU_FN(cuGraphInstantiate_v2)
(CUgraphExec *exec, CUgraph graph, void **error_node, char *log, size_t log_bytes)
{
    SIM_COUNT(cuGraphInstantiate_v2);
    (void)error_node;
    if (log != NULL && log_bytes > 0)
        log[0] = '\0';
    return graph_instantiate(exec, graph);
}

static CUresult do_cuGraphInstantiateWithParams(int pt, CUgraphExec *exec, CUgraph graph,
                                                void *params)
{
    (void)pt;
    (void)params;
    return graph_instantiate(exec, graph);
}
CU_PT(cuGraphInstantiateWithParams, _ptsz, (CUgraphExec * exec, CUgraph graph, void *params), exec,
      graph, params)

static CUresult exec_update(CUgraphExec exec, CUgraph graph)
{
    CUgraphExec fresh = NULL;
    CUresult rc = graph_instantiate(&fresh, graph);
    if (rc != CUDA_OK || exec == NULL)
        return rc != CUDA_OK ? rc : CUDA_EINVAL;
    struct sim_graph *x = exec, *f = fresh, old = *x;
    *x = *f;
    *f = old;
    graph_free(f);
    return CUDA_OK;
}

CU_FN(cuGraphExecUpdate)(CUgraphExec exec, CUgraph graph, void **error_node, int *result)
{
    SIM_COUNT(cuGraphExecUpdate);
    CUresult rc = exec_update(exec, graph);
    if (error_node != NULL)
        *error_node = NULL;
    if (result != NULL)
        *result = rc != CUDA_OK;
    return rc;
}

CU_FN(cuGraphExecUpdate_v2)(CUgraphExec exec, CUgraph graph, void *result)
{
    SIM_COUNT(cuGraphExecUpdate_v2);
    CUresult rc = exec_update(exec, graph);
    if (rc == CUDA_OK && result != NULL)
        memset(result, 0, 24);
    return rc;
}

static CUresult do_cuGraphLaunch(int pt, CUgraphExec exec, CUstream stream)
{
    struct sim_graph *x = exec;
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL || x == NULL)
        return s == NULL ? CUDA_ECTX : CUDA_EINVAL;
    CUresult rc = CUDA_OK;
    if (s->capture == NULL) {
        SIM_ADD(simReplayedKernels, x->kernels);
        SIM_ADD(simReplayedCopies, x->copies);
    }
    for (uint32_t i = 0; i < x->n && rc == CUDA_OK; i++) {
        struct sim_entry e = x->nodes[i];
        rc = entry_clone(&e);
        if (rc == CUDA_OK && e.type == SIM_E_COLL && s->capture == NULL)
            SIM_ADD(simReplayedCollectives, e.u.coll.n);
        if (rc == CUDA_OK)
            rc = sim_push(s, &e, NULL);
    }
    return rc;
}
CU_PT(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), exec, stream)

static CUresult do_cuGraphUpload(int pt, CUgraphExec exec, CUstream stream)
{
    return exec == NULL ? CUDA_EINVAL : sim_stream_of(stream, pt) == NULL ? CUDA_ECTX : CUDA_OK;
}
CU_PT(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), exec, stream)
