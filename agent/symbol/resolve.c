/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/map.h"
#include "symbol/space.h"

#define WAITING_MAX   4096
#define WAITING_BYTES (8U * 1024 * 1024)
#define KNOWN_MAX     65536
/* Stacks with Python frames of unknown code, and how often each is asked for again. */
#define VAGUE_MAX       4096
#define VAGUE_TIMES     3
#define PROCESSES_MAX   256
#define FILES_MAX       256
#define DEFAULT_SYMBOLS (24U * 1024 * 1024)
#define DEFAULT_RATE    1000
#define WAIT_MS         200
/* So few frames mean code without frame pointers, not a thread that began two calls ago. */
#define SHALLOW 2

struct waiting {
    uint64_t proc_start_ns;
    struct ltn_event_stack e; /* cut after the last frame used */
};

struct ltn_resolver {
    struct ltn_resolver_opts opts;
    struct ltn_chan *queue;
    pthread_t thread;
    bool started;
    _Atomic int stop;
    _Atomic uint64_t received, resolved, known, empty, refused;
    pthread_mutex_t lock; /* guards shared */
    struct ltn_modules_stats shared;
    /* Resolve thread. */
    struct ltn_spaces *spaces;
    struct ltn_modules *modules;
    struct ltn_map ids; /* stack id -> not NULL: handed on already */
    struct ltn_stack_builder builder;
    struct ltn_stack_builder python;
    size_t unknown;       /* Python frames of the stack in hand that may be known the next time */
    struct ltn_map vague; /* stack id -> how often it came with such frames, plus one */
    uint64_t second_ns;   /* the running second of the rate */
    uint32_t in_second;
};

struct ltn_resolver *ltn_resolver_new(const struct ltn_resolver_opts *opts)
{
    struct ltn_resolver *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return NULL;
    }
    r->opts = *opts;
    (void)pthread_mutex_init(&r->lock, NULL);
    ltn_map_init(&r->ids, KNOWN_MAX);
    ltn_map_init(&r->vague, VAGUE_MAX);
    ltn_stack_builder_init(&r->builder);
    ltn_stack_builder_init(&r->python);
    r->queue = ltn_chan_new(WAITING_MAX, WAITING_BYTES);
    r->spaces = ltn_spaces_new(PROCESSES_MAX);
    r->modules =
        ltn_modules_new(opts->symbol_bytes != 0 ? opts->symbol_bytes : DEFAULT_SYMBOLS, FILES_MAX);
    if (r->queue == NULL || r->spaces == NULL || r->modules == NULL) {
        ltn_resolver_free(r);
        return NULL;
    }
    return r;
}

void ltn_resolver_free(struct ltn_resolver *r)
{
    if (r == NULL) {
        return;
    }
    ltn_chan_free(r->queue, free);
    ltn_spaces_free(r->spaces);
    ltn_modules_free(r->modules);
    ltn_map_done(&r->ids, NULL);
    ltn_map_done(&r->vague, NULL);
    ltn_stack_builder_done(&r->builder);
    ltn_stack_builder_done(&r->python);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

int ltn_resolver_send(struct ltn_resolver *r, const struct ltn_event_stack *e,
                      uint64_t proc_start_ns)
{
    /* The Python frames lie behind all native ones, used or not. */
    size_t used = e->python_count > 0 ? offsetof(struct ltn_event_stack, python) +
                                            (size_t)e->python_count * sizeof(e->python[0])
                                      : offsetof(struct ltn_event_stack, native) +
                                            (size_t)e->native_count * sizeof(e->native[0]);
    size_t bytes = offsetof(struct waiting, e) + used;
    struct waiting *w = malloc(bytes);
    if (w == NULL) {
        return -ENOMEM;
    }
    w->proc_start_ns = proc_start_ns;
    memcpy((char *)w + offsetof(struct waiting, e), e, used);
    atomic_fetch_add(&r->received, 1);
    int rc = ltn_chan_send(r->queue, w, bytes);
    if (rc < 0) {
        atomic_fetch_add(&r->refused, 1);
        free(w);
    }
    return rc;
}

/* ---- one stack ---- */

static void hex(const struct ltn_module_key *key, char out[2 * LTN_MODULE_KEY_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    size_t n = key->is_build_id ? key->len : 0;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[key->bytes[i] >> 4];
        out[2 * i + 1] = digits[key->bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

/* Adds the frame of a place in a mapping. */
static void add_native(struct ltn_resolver *r, uint32_t pid, struct ltn_mapping *map, uint64_t at)
{
    char name[LTN_STACK_NAME_BYTES] = "";
    char build_id[2 * LTN_MODULE_KEY_BYTES + 1] = "";
    struct ltn_stack_frame f = {
        .kind = LTN_FRAME_NATIVE, .function = name, .file = map->path, .build_id = build_id};
    bool is_vdso = strcmp(map->path, "[vdso]") == 0;
    if (map->path[0] != '/' && !is_vdso) {
        f.file = "[anon]"; /* code made at run time: the place says nothing */
        ltn_stack_builder_add(&r->builder, &f);
        return;
    }
    f.offset = at - map->start + map->pgoff_bytes;
    struct ltn_symtab *vdso = is_vdso ? ltn_modules_vdso(r->modules) : NULL;
    int rc = vdso != NULL ? ltn_symtab_name(vdso, f.offset, name, sizeof(name))
             : is_vdso    ? LTN_ERR_NOT_FOUND
                          : ltn_modules_name(r->modules, pid, map, f.offset, name, sizeof(name));
    if (rc < 0) {
        name[0] = '\0';
    }
    if (!is_vdso) {
        hex(&map->key, build_id);
    }
    ltn_stack_builder_add(&r->builder, &f);
}

/* Where the interpreter runs Python code; its frames say it better. */
static bool is_eval(const struct ltn_stack_frame *f, const struct ltn_stack_builder *b)
{
    static const char eval[] = "_PyEval_EvalFrame";
    const char *function = ltn_buf_str(&b->texts) + (uintptr_t)f->function;
    return strncmp(function, eval, sizeof(eval) - 1) == 0;
}

/* Native frames down to the interpreter, then the Python frames. */
static void add_python(struct ltn_resolver *r, const struct ltn_event_stack *e)
{
    struct ltn_stack_builder *b = &r->builder;
    ltn_stack_builder_reset(&r->python);
    r->unknown = r->opts.python(r->opts.python_ctx, e, &r->python);
    if (r->python.count == 0) {
        return;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (is_eval(&b->frames[i], b)) {
            b->count = i;
            break;
        }
    }
    b->truncated = r->python.truncated;
    for (size_t i = 0; i < r->python.count; i++) {
        const char *texts = ltn_buf_str(&r->python.texts);
        struct ltn_stack_frame f = r->python.frames[i];
        f.function = texts + (uintptr_t)f.function;
        f.file = texts + (uintptr_t)f.file;
        f.build_id = "";
        ltn_stack_builder_add(b, &f);
    }
}

static struct ltn_program program_of(const struct ltn_event_stack *e, uint64_t start_ns)
{
    return (struct ltn_program){.pid = e->hdr.tgid,
                                .execs = e->hdr.reserved,
                                .proc_start_ns = start_ns,
                                .code_start = e->code_start,
                                .stack_start = e->stack_start};
}

static void build(struct ltn_resolver *r, const struct ltn_event_stack *e, uint64_t start_ns)
{
    struct ltn_stack_builder *b = &r->builder;
    const struct ltn_program program = program_of(e, start_ns);
    ltn_stack_builder_reset(b);
    r->unknown = 0;
    b->truncated = e->native_count == LTN_STACK_NATIVE || e->native_count <= SHALLOW;
    for (uint32_t i = 0; i < e->native_count; i++) {
        struct ltn_mapping *map = NULL;
        /* A return address belongs to the call before it, which may end its function. */
        uint64_t at = e->native[i] - 1;
        if (ltn_spaces_find(r->spaces, &program, e->hdr.time_ns, at, &map) < 0) {
            b->truncated = true; /* no code there: the walk went astray */
            break;
        }
        add_native(r, program.pid, map, at);
    }
    if (e->python_count > 0 && r->opts.python != NULL) {
        add_python(r, e);
    }
}

static bool within_rate(struct ltn_resolver *r)
{
    uint64_t now = ltn_now_mono_ns();
    if (now - r->second_ns > LTN_NS_PER_S) {
        r->second_ns = now;
        r->in_second = 0;
    }
    uint32_t most = r->opts.stacks_per_second != 0 ? r->opts.stacks_per_second : DEFAULT_RATE;
    return r->in_second++ < most;
}

static void forget(struct ltn_resolver *r, uint64_t stack_id)
{
    if (r->opts.forget != NULL) {
        r->opts.forget(r->opts.forget_ctx, stack_id);
    }
}

static void remember(struct ltn_resolver *r, uint64_t stack_id)
{
    if (r->ids.len >= KNOWN_MAX) {
        ltn_map_done(&r->ids, NULL);
        ltn_map_init(&r->ids, KNOWN_MAX);
    }
    if (ltn_map_put_u64(&r->ids, stack_id, r) != 0) {
        return; /* then it is resolved once more when it comes again */
    }
}

/* Was something of the stack not known that may be the next time? Not asked for without end. */
static bool is_vague(struct ltn_resolver *r, uint64_t stack_id)
{
    if (r->unknown == 0) {
        return false;
    }
    uintptr_t times = (uintptr_t)ltn_map_get_u64(&r->vague, stack_id);
    if (times >= VAGUE_TIMES) {
        return false;
    }
    if (r->vague.len >= VAGUE_MAX) {
        ltn_map_done(&r->vague, NULL);
        ltn_map_init(&r->vague, VAGUE_MAX);
    }
    return ltn_map_put_u64(&r->vague, stack_id, (void *)(times + 1)) == 0;
}

static void resolve(struct ltn_resolver *r, const struct waiting *w)
{
    const struct ltn_event_stack *e = &w->e;
    if (ltn_map_get_u64(&r->ids, e->stack_id) != NULL) {
        atomic_fetch_add(&r->known, 1);
        return;
    }
    if (!within_rate(r)) {
        atomic_fetch_add(&r->refused, 1);
        forget(r, e->stack_id);
        return;
    }
    const struct ltn_program program = program_of(e, w->proc_start_ns);
    if (!ltn_spaces_count_stack(r->spaces, &program)) {
        atomic_fetch_add(&r->refused, 1);
        return;
    }
    build(r, e, w->proc_start_ns);
    if (r->builder.count == 0) {
        atomic_fetch_add(&r->empty, 1);
        return;
    }
    const struct ltn_stack id = {
        .stack_id = e->stack_id, .pid = e->hdr.tgid, .proc_start_ns = w->proc_start_ns};
    struct ltn_stack *s = ltn_stack_new(&r->builder, &id);
    if (s == NULL || r->opts.stack(r->opts.ctx, s) < 0) {
        atomic_fetch_add(&r->refused, 1);
        forget(r, e->stack_id);
    } else {
        atomic_fetch_add(&r->resolved, 1);
        if (is_vague(r, e->stack_id)) {
            forget(r, e->stack_id);
        } else {
            remember(r, e->stack_id);
        }
    }
    ltn_stack_unref(s);
}

/* ---- the thread ---- */

static void share_stats(struct ltn_resolver *r)
{
    (void)pthread_mutex_lock(&r->lock);
    ltn_modules_stats(r->modules, &r->shared);
    (void)pthread_mutex_unlock(&r->lock);
}

static void *run(void *arg)
{
    struct ltn_resolver *r = arg;
    struct waiting *w;
    for (;;) {
        w = ltn_chan_recv_wait(r->queue, WAIT_MS);
        if (w == NULL && atomic_load(&r->stop)) {
            break;
        }
        if (w != NULL) {
            resolve(r, w);
            free(w);
            ltn_modules_rest(r->modules);
            share_stats(r);
        }
    }
    return NULL;
}

int ltn_resolver_start(struct ltn_resolver *r)
{
    int rc = pthread_create(&r->thread, NULL, run, r);
    if (rc == 0) {
        (void)pthread_setname_np(r->thread, "resolve");
        r->started = true;
    }
    return -rc;
}

void ltn_resolver_stop(struct ltn_resolver *r)
{
    atomic_store(&r->stop, 1);
    ltn_chan_close(r->queue);
    if (r->started) {
        (void)pthread_join(r->thread, NULL);
        r->started = false;
    }
}

void ltn_resolver_stats(struct ltn_resolver *r, struct ltn_resolver_stats *ret)
{
    *ret = (struct ltn_resolver_stats){
        .received_total = atomic_load(&r->received),
        .resolved_total = atomic_load(&r->resolved),
        .known_total = atomic_load(&r->known),
        .empty_total = atomic_load(&r->empty),
        .refused_total = atomic_load(&r->refused),
    };
    (void)pthread_mutex_lock(&r->lock);
    ret->modules = r->shared;
    (void)pthread_mutex_unlock(&r->lock);
}
