/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/map.h"
#include "base/text.h"
#include "bpf/event.h"
#include "discover/elf.h"
#include "discover/file_id.h"
#include "probe/families.h"
#include "probe/ops.h"
#include "probe/probes_internal.h"
#include "probe/tracepoint.h"

#include "agent.skel.h"

#define MAX_FILES        1024
#define SYMBOLS_MAX      512
#define NOTE_BYTES       1024
#define DEFAULT_RING     (4U * 1024 * 1024)
#define DEFAULT_SLOW_NS  LTN_NS_PER_MS
#define WAKE_AT_FRACTION 4   /* user space is woken when the ring is a quarter full */
#define THIN_AT_FRACTION 2   /* and records are thinned out from half of it on */
#define PERF_LINKS_MAX   512 /* closing one takes about 100 ms */

/* One file with its links. */
struct attached {
    uint32_t lib_id;
    uint32_t covered_by; /* another file whose links reach this one as well; 0 = own links */
    uint8_t build_id[LTN_ELF_BUILD_ID_BYTES];
    size_t build_id_len;
    struct ltn_file_id file;
    int link_fds[2];
    struct bpf_link **perf_links;
    size_t perf_link_count;
    struct ltn_probe_site *sites;
    size_t site_count;
};

/* What is looked for in a file, and what came of it. */
struct lookup {
    struct ltn_elf_sym syms[SYMBOLS_MAX];
    uint64_t cookies[SYMBOLS_MAX];
    struct ltn_link_site links[SYMBOLS_MAX];
};

/* Perf links on their way out, each of which takes the kernel about 100 ms. */
struct closing {
    pthread_t thread;
    _Atomic bool done;
    struct bpf_link **links;
    size_t count;
    struct ltn_file_id file;       /* not attached to again before they are closed */
    const _Atomic bool *attaching; /* who attaches goes first: both want the same locks */
    struct closing *next;
};

struct ltn_probes {
    struct agent *skel;
    enum ltn_link_kind kind;
    bool sched;
    bool stacks;
    uint32_t host; /* families loaded, then those that run */
    struct attached files[MAX_FILES];
    size_t file_count;
    struct closing *closing;
    _Atomic bool attaching;
    struct ltn_buf note;
    struct ltn_buf host_note; /* host families that do not run */
    uint64_t map_bytes;
};

/* ---- loading
 * ----------------------------------------------------------------------------------------------------------------
 */

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
    (void)level;
    (void)fmt;
    (void)ap;
    return 0;
}

/* What an errno of a failed load means for the user. */
static const char *load_advice(int rc)
{
    switch (rc) {
    case -EPERM:
        return "CAP_BPF and CAP_PERFMON are needed (or root), and the container's seccomp profile "
               "must allow bpf()";
    case -EACCES:
        return "the kernel's verifier refused the program; please report it with the kernel "
               "version";
    case -ENOMEM:
        return "the memory limit of the container is too small for the maps";
    case -ESRCH:
    case -ENOENT:
        return "the kernel has no type information; /sys/kernel/btf/vmlinux must exist "
               "(CONFIG_DEBUG_INFO_BTF)";
    default:
        return "see `lanterne check`";
    }
}

static void choose_programs(struct agent *skel, enum ltn_link_kind kind, bool sched)
{
    bool session = kind == LTN_LINK_SESSION;
    enum bpf_attach_type type = (enum bpf_attach_type)ltn_link_attach_type(kind);
    (void)bpf_program__set_autoload(skel->progs.call_session, session);
    (void)bpf_program__set_autoload(skel->progs.call_enter, !session);
    (void)bpf_program__set_autoload(skel->progs.call_return, !session);
    (void)bpf_program__set_autoload(skel->progs.on_sched_switch, sched);
    if (kind != LTN_LINK_PERF) {
        (void)bpf_program__set_expected_attach_type(skel->progs.call_session, type);
        (void)bpf_program__set_expected_attach_type(skel->progs.call_enter, type);
        (void)bpf_program__set_expected_attach_type(skel->progs.call_return, type);
    }
}

/* What of the optional parts is loaded. */
struct parts {
    bool sched;
    bool stacks;
    uint32_t host; /* LTN_HOST_* */
};

static void fill_config(struct agent *skel, const struct ltn_probes_opts *o, struct parts with)
{
    uint32_t ring = o->ring_bytes == 0 ? DEFAULT_RING : o->ring_bytes;
    skel->rodata->config = (struct ltn_bpf_config){
        .scope_cgroup = o->scope_cgroup_id,
        .scope_cgroup_level = o->scope_cgroup_level,
        .scope_uid = o->scope_uid,
        .scope_mode = o->scope_mode,
        .sample_every = o->sample_every,
        .wake_bytes = ring / WAKE_AT_FRACTION,
        .open_slow_ns = o->open_slow_ns == 0 ? DEFAULT_SLOW_NS : o->open_slow_ns,
        .thin_bytes = o->keep_all ? 0 : ring / THIN_AT_FRACTION,
    };
    skel->rodata->have_sched = with.sched;
    skel->rodata->have_stacks = with.stacks;
    skel->rodata->mark_victim_is_pid = ltn_tracepoint_arg_count("mark_victim") == 1;
    (void)bpf_map__set_max_entries(skel->maps.calls, ring);
}

static int load_as(const struct ltn_probes_opts *o, enum ltn_link_kind kind, struct parts with,
                   struct agent **ret)
{
    struct agent *skel = agent__open();
    if (skel == NULL) {
        return errno != 0 ? -errno : -ENOMEM;
    }
    choose_programs(skel, kind, with.sched);
    ltn_families_choose(skel, with.host);
    fill_config(skel, o, with);
    int rc = agent__load(skel);
    if (rc < 0) {
        agent__destroy(skel);
        return rc;
    }
    *ret = skel;
    return 0;
}

/* Does the kernel make a link of this kind for the loaded program? Asked with a path that is no
 * file: EBADF means it got as far as looking at it. */
static bool kind_works(struct agent *skel, enum ltn_link_kind kind)
{
    if (kind == LTN_LINK_PERF) {
        return true;
    }
    struct bpf_program *prog =
        kind == LTN_LINK_SESSION ? skel->progs.call_session : skel->progs.call_enter;
    const struct ltn_link_site site = {.offset_bytes = 0};
    int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return false;
    }
    int rc = ltn_link_create(bpf_program__fd(prog), kind, dir, &site, 1, false);
    if (rc >= 0) {
        (void)close(rc);
    }
    (void)close(dir);
    return rc == -EBADF;
}

static void add_to_note(struct ltn_buf *note, const char *what, int rc)
{
    (void)ltn_buf_printf(note, "%s%s: %s", note->len > 0 ? "; " : "", what, ltn_err_str(rc));
}

static bool is_asked_for(const struct parts *with, const struct ltn_probes_opts *o)
{
    return !(with->sched && o->no_sched) && !(with->stacks && o->no_stacks);
}

/* What had to be left out, and the error that came of trying with everything. */
static void note_lost(struct ltn_probes *p, const struct ltn_probes_opts *o, uint32_t host, int why)
{
    if (!p->sched && !o->no_sched) {
        add_to_note(&p->note, "sched_switch", why);
    }
    if (!p->stacks && !o->no_stacks) {
        add_to_note(&p->note, "stacks", why);
    }
    if (p->host != host) {
        add_to_note(&p->host_note, p->host != 0 ? "sockets" : "host families", why);
    }
}

/* With one kind of link: everything, else without the part that asks most of the kernel, and so
 * on. */
static int load_kind(struct ltn_probes *p, const struct ltn_probes_opts *o, enum ltn_link_kind kind,
                     uint32_t host)
{
    uint32_t no_net = host & ~(uint32_t)LTN_HOST_NET;
    const struct parts tries[] = {
        {true, true, host},   {true, true, no_net}, {true, false, host},
        {true, true, 0},      {true, false, 0},     {false, true, host},
        {false, false, host}, {false, true, 0},     {false, false, 0},
    };
    int first = 0;
    int rc = -EINVAL;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(tries); i++) {
        if (!is_asked_for(&tries[i], o)) {
            continue;
        }
        rc = load_as(o, kind, tries[i], &p->skel);
        first = first == 0 ? rc : first;
        if (rc == 0) {
            p->sched = tries[i].sched;
            p->stacks = tries[i].stacks;
            p->host = tries[i].host;
            note_lost(p, o, host, first);
            return 0;
        }
    }
    return first;
}

/* Goes down the ladder of link kinds. */
static int load_best(struct ltn_probes *p, const struct ltn_probes_opts *o)
{
    static const enum ltn_link_kind ladder[] = {LTN_LINK_SESSION, LTN_LINK_MULTI, LTN_LINK_PERF};
    uint32_t host = ltn_families_possible(LTN_HOST_ALL & ~o->host_off, &p->host_note);
    int rc = -EINVAL;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(ladder); i++) {
        if (o->force_kind && ladder[i] != o->kind) {
            continue;
        }
        rc = load_kind(p, o, ladder[i], host);
        if (rc == 0 && kind_works(p->skel, ladder[i])) {
            p->kind = ladder[i];
            return 0;
        }
        if (rc == 0) {
            agent__destroy(p->skel);
            p->skel = NULL;
            rc = -EOPNOTSUPP;
        }
        ltn_buf_reset(&p->note);
    }
    return rc;
}

void ltn_probes_forget_stack(const struct ltn_probes *p, uint64_t stack_id)
{
    (void)bpf_map_delete_elem(bpf_map__fd(p->skel->maps.stacks_sent), &stack_id);
}

int ltn_probes_set_python(const struct ltn_probes *p, pid_t pid,
                          const struct ltn_python_process *python)
{
    uint32_t key = (uint32_t)pid;
    int fd = bpf_map__fd(p->skel->maps.python_processes);
    return bpf_map_update_elem(fd, &key, python, BPF_ANY) == 0 ? 0 : -errno;
}

bool ltn_probes_get_python(const struct ltn_probes *p, pid_t pid, struct ltn_python_process *ret)
{
    uint32_t key = (uint32_t)pid;
    return bpf_map_lookup_elem(bpf_map__fd(p->skel->maps.python_processes), &key, ret) == 0;
}

void ltn_probes_forget_code(const struct ltn_probes *p, uint64_t identity)
{
    (void)bpf_map_delete_elem(bpf_map__fd(p->skel->maps.python_codes), &identity);
}

static void attach_optional(struct ltn_probes *p, struct bpf_program *prog, const char *name,
                            struct bpf_link **ret)
{
    *ret = bpf_program__attach(prog);
    if (*ret == NULL) {
        add_to_note(&p->note, name, -errno);
    }
}

static void attach_tracepoints(struct ltn_probes *p)
{
    struct agent *s = p->skel;
    if (p->sched) {
        attach_optional(p, s->progs.on_sched_switch, "sched_switch", &s->links.on_sched_switch);
    }
    attach_optional(p, s->progs.on_exec, "sched_process_exec", &s->links.on_exec);
    attach_optional(p, s->progs.on_exit, "sched_process_exit", &s->links.on_exit);
    attach_optional(p, s->progs.on_fork, "sched_process_fork", &s->links.on_fork);
    attach_optional(p, s->progs.on_oom, "mark_victim", &s->links.on_oom);
    p->host = ltn_families_attach(s, p->host, &p->host_note);
}

/* Bytes the kernel says a map takes, from its fdinfo. */
static uint64_t map_memory_bytes(int fd)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    if (ltn_file_read_head(path, text, sizeof(text)) < 0) {
        return 0;
    }
    const char *at = strstr(text, "memlock:");
    uint64_t bytes = 0;
    if (at != NULL) {
        at += strlen("memlock:");
        at += strspn(at, " \t");
        char number[24] = {0};
        (void)memcpy(number, at, strspn(at, "0123456789") < 23 ? strspn(at, "0123456789") : 23);
        (void)ltn_parse_u64(number, &bytes);
    }
    return bytes;
}

static uint64_t all_map_bytes(const struct agent *skel)
{
    uint64_t sum = 0;
    struct bpf_map *map;
    bpf_object__for_each_map(map, skel->obj)
    {
        int fd = bpf_map__fd(map);
        if (fd >= 0) {
            sum += map_memory_bytes(fd);
        }
    }
    return sum;
}

int ltn_probes_new(const struct ltn_probes_opts *opts, struct ltn_probes **ret,
                   struct ltn_errinfo *info)
{
    struct ltn_probes *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    ltn_buf_init(&p->note, NOTE_BYTES);
    ltn_buf_init(&p->host_note, NOTE_BYTES);
    (void)libbpf_set_print(quiet);
    int rc = load_best(p, opts);
    if (rc < 0) {
        (void)ltn_errinfo_set(info, rc, "cannot load the kernel programs: %s; %s", ltn_err_str(rc),
                              load_advice(rc));
        ltn_probes_free(p);
        return rc;
    }
    attach_tracepoints(p);
    p->map_bytes = all_map_bytes(p->skel);
    *ret = p;
    return 0;
}

/* ---- attaching
 * --------------------------------------------------------------------------------------------------------------
 */

static void *close_links(void *arg)
{
    struct closing *c = arg;
    const struct timespec pause = {.tv_nsec = 5 * (long)LTN_NS_PER_MS};
    for (size_t i = c->count; i > 0; i--) { /* entries before returns */
        while (atomic_load(c->attaching)) {
            (void)nanosleep(&pause, NULL);
        }
        (void)bpf_link__destroy(c->links[i - 1]);
    }
    atomic_store(&c->done, true);
    return NULL;
}

/* Frees what has been closed; waits for the rest when asked to. */
static void reap(struct ltn_probes *p, bool wait)
{
    struct closing **at = &p->closing;
    while (*at != NULL) {
        struct closing *c = *at;
        if (!wait && !atomic_load(&c->done)) {
            at = &c->next;
            continue;
        }
        (void)pthread_join(c->thread, NULL);
        *at = c->next;
        free(c->links);
        free(c);
    }
}

/* Closes the file's links on a thread of their own: meanwhile other files are to be attached. */
static void close_aside(struct ltn_probes *p, const struct attached *a)
{
    reap(p, false);
    struct closing *c = a->perf_link_count > 0 ? calloc(1, sizeof(*c)) : NULL;
    if (c != NULL) {
        *c = (struct closing){.links = a->perf_links,
                              .count = a->perf_link_count,
                              .file = a->file,
                              .attaching = &p->attaching,
                              .next = p->closing};
        if (pthread_create(&c->thread, NULL, close_links, c) == 0) {
            (void)pthread_setname_np(c->thread, "detach");
            p->closing = c;
            return;
        }
        free(c);
    }
    for (size_t i = a->perf_link_count; i > 0; i--) {
        (void)bpf_link__destroy(a->perf_links[i - 1]);
    }
    free(a->perf_links);
}

/* Calls would count twice while old links are still there. */
static bool is_closing(struct ltn_probes *p, const struct ltn_file_id *file)
{
    reap(p, false);
    const struct closing *c = p->closing;
    while (c != NULL && !ltn_file_id_same(&c->file, file)) {
        c = c->next;
    }
    return c != NULL;
}

static void release(struct ltn_probes *p, struct attached *a)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(a->link_fds); i++) {
        if (a->link_fds[i] >= 0) {
            (void)close(a->link_fds[i]);
        }
    }
    close_aside(p, a);
    free(a->sites);
}

void ltn_probes_free(struct ltn_probes *p)
{
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->file_count; i++) {
        release(p, &p->files[i]);
    }
    reap(p, true);
    agent__destroy(p->skel);
    ltn_buf_done(&p->note);
    ltn_buf_done(&p->host_note);
    free(p);
}

static bool wanted(const struct ltn_lib *lib, enum ltn_op_library library)
{
    switch (lib->kind) {
    case LTN_LIB_CUDART:
        return library == LTN_OP_LIB_CUDART;
    case LTN_LIB_CUDA:
        return library == LTN_OP_LIB_CUDA_DRIVER;
    case LTN_LIB_NCCL:
        return library == LTN_OP_LIB_NCCL;
    case LTN_LIB_EMBEDDED:
        return ((lib->embeds & LTN_EMBEDS_CUDART) && library == LTN_OP_LIB_CUDART) ||
               ((lib->embeds & LTN_EMBEDS_NCCL) && library == LTN_OP_LIB_NCCL);
    default:
        return false;
    }
}

/* The functions this file may export. Closing a perf link takes so long that only what every
 * answer needs gets one. Returns the count. */
static size_t collect_names(const struct ltn_lib *lib, enum ltn_link_kind kind, struct lookup *l)
{
    size_t all;
    const struct ltn_op_symbol *table = ltn_op_symbols(&all);
    unsigned major = lib->kind == LTN_LIB_CUDART ? ltn_op_soname_major(lib->soname) : 0;
    size_t count = 0;
    for (size_t i = 0; i < all && count < SYMBOLS_MAX; i++) {
        uint64_t cookie =
            wanted(lib, table[i].library) ? ltn_op_symbol_cookie(&table[i], major) : 0;
        bool left_out = kind == LTN_LINK_PERF && (LTN_COOKIE_FLAGS(cookie) & LTN_OP_DETAIL) != 0;
        if (cookie != 0 && !left_out) {
            l->syms[count] = (struct ltn_elf_sym){.name = table[i].symbol};
            l->cookies[count++] = cookie;
        }
    }
    return count;
}

/* Turns found symbols into sites; aliases of one address and functions that refuse a probe are left
 * out. */
static size_t pick_sites(struct lookup *l, size_t count, uint16_t machine, uint32_t lib_id,
                         struct ltn_probe_site *sites)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ltn_elf_sym *sym = &l->syms[i];
        if (!sym->found || sym->alias_of != 0) {
            continue;
        }
        struct ltn_site site = ltn_site_pick(sym->code, sym->code_len, machine);
        if (site.kind == LTN_SITE_REFUSED) {
            continue;
        }
        sites[n] = (struct ltn_probe_site){.lib_id = lib_id,
                                           .op = (uint16_t)LTN_COOKIE_OP(l->cookies[i]),
                                           .symbol = sym->name,
                                           .site = site};
        l->links[n] = (struct ltn_link_site){.offset_bytes = sym->file_offset + site.delta_bytes,
                                             .cookie = l->cookies[i]};
        n++;
    }
    return n;
}

/* A function that may be left without a return must not get a return probe. */
static bool wants_return(const struct ltn_link_site *site)
{
    return (LTN_COOKIE_FLAGS(site->cookie) & LTN_OP_ENTRY_ONLY) == 0;
}

static int attach_perf(struct ltn_probes *p, struct attached *a, int fd,
                       const struct ltn_link_site *links, size_t count)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    a->perf_links = calloc(count * 2, sizeof(struct bpf_link *));
    if (a->perf_links == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count * 2 && a->perf_link_count < PERF_LINKS_MAX; i++) {
        /* Returns first: a call must never be seen to begin without its end being watched. */
        bool at_return = i < count;
        const struct ltn_link_site *at = &links[i % count];
        if (at_return && !wants_return(at)) {
            continue;
        }
        LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = at_return, .bpf_cookie = at->cookie);
        struct bpf_program *prog =
            at_return ? p->skel->progs.call_return : p->skel->progs.call_enter;
        struct bpf_link *link =
            bpf_program__attach_uprobe_opts(prog, -1, path, (size_t)at->offset_bytes, &opts);
        if (link == NULL) {
            return -errno;
        }
        a->perf_links[a->perf_link_count++] = link;
    }
    return 0;
}

/* Link of kind multi at the returns of the functions that have a probe there; -1 when none has. */
static int attach_returns(struct ltn_probes *p, int fd, const struct ltn_link_site *links,
                          size_t count, int *ret_fd)
{
    struct ltn_link_site *some = calloc(count, sizeof(*some));
    if (some == NULL) {
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (wants_return(&links[i])) {
            some[n++] = links[i];
        }
    }
    int rc = n == 0 ? -1
                    : ltn_link_create(bpf_program__fd(p->skel->progs.call_return), p->kind, fd,
                                      some, n, true);
    free(some);
    if (n > 0 && rc < 0) {
        return rc;
    }
    *ret_fd = rc;
    return 0;
}

static int attach_links(struct ltn_probes *p, struct attached *a, int fd,
                        const struct ltn_link_site *links, size_t count)
{
    int rc;
    if (p->kind == LTN_LINK_PERF) {
        atomic_store(&p->attaching, true);
        rc = attach_perf(p, a, fd, links, count);
        atomic_store(&p->attaching, false);
        return rc;
    }
    if (p->kind == LTN_LINK_SESSION) {
        rc = ltn_link_create(bpf_program__fd(p->skel->progs.call_session), p->kind, fd, links,
                             count, false);
        if (rc >= 0) {
            a->link_fds[0] = rc;
        }
        return rc < 0 ? rc : 0;
    }
    rc = attach_returns(p, fd, links, count, &a->link_fds[0]);
    if (rc < 0) {
        return rc;
    }
    rc = ltn_link_create(bpf_program__fd(p->skel->progs.call_enter), p->kind, fd, links, count,
                         false);
    if (rc >= 0) {
        a->link_fds[1] = rc;
    }
    return rc < 0 ? rc : 0;
}

static struct attached *find_file(struct ltn_probes *p, uint32_t lib_id)
{
    for (size_t i = 0; i < p->file_count; i++) {
        if (p->files[i].lib_id == lib_id) {
            return &p->files[i];
        }
    }
    return NULL;
}

/* The same file may be seen through several overlay mounts, and be named by the user and mapped by
 * a process. Is it one whose links we have? Its id, or 0. Where numbers do not tell, a breakpoint
 * in the process's memory does; that needs the right to trace it, which Yama can take from
 * everybody. */
static uint32_t covering_twin(const struct ltn_probes *p, const struct ltn_lib *lib,
                              const struct attached *own, uint64_t offset_bytes)
{
    uint32_t likely = 0;
    for (size_t i = 0; i < p->file_count && lib->twin_id != 0; i++) {
        const struct attached *a = &p->files[i];
        if (a->covered_by != 0 || a->build_id_len != lib->build_id_len ||
            memcmp(a->build_id, lib->build_id, lib->build_id_len) != 0) {
            continue;
        }
        if (ltn_file_id_same(&a->file, &own->file)) {
            return a->lib_id;
        }
        likely = likely == 0 ? a->lib_id : likely;
    }
    bool probed = likely != 0 && lib->user_count > 0 &&
                  ltn_lib_is_probed(lib, lib->users[0].pid, offset_bytes) == 1;
    return probed ? likely : 0;
}

/* Fills l and *a with the functions of the open file. */
static int find_functions(struct ltn_probes *p, const struct ltn_lib *lib, int fd, struct lookup *l,
                          struct attached *a)
{
    struct ltn_elf *elf = NULL;
    int rc = ltn_elf_open_fd(fd, &elf);
    if (rc < 0) {
        return rc;
    }
    size_t count = collect_names(lib, p->kind, l);
    rc = ltn_lib_lookup(lib, elf, l->syms, count);
    *a = (struct attached){
        .lib_id = lib->id, .link_fds = {-1, -1}, .build_id_len = lib->build_id_len};
    memcpy(a->build_id, lib->build_id, sizeof(a->build_id));
    if (rc == 0) {
        rc = ltn_file_id_of(fd, &a->file);
    }
    if (rc == 0) {
        a->sites = calloc(count + 1, sizeof(*a->sites));
        rc = a->sites == NULL ? -ENOMEM : 0;
    }
    if (rc == 0) {
        a->site_count = pick_sites(l, count, ltn_elf_info(elf)->machine, lib->id, a->sites);
        rc = a->site_count == 0 ? LTN_ERR_NOT_FOUND : 0;
    }
    ltn_elf_free(elf);
    if (rc < 0) {
        release(p, a);
    }
    return rc;
}

static int attach_open_file(struct ltn_probes *p, const struct ltn_lib *lib, int fd,
                            struct lookup *l)
{
    struct attached a;
    int rc = find_functions(p, lib, fd, l, &a);
    if (rc < 0) {
        return rc;
    }
    a.covered_by = covering_twin(p, lib, &a, l->links[0].offset_bytes);
    if (a.covered_by == 0 && is_closing(p, &a.file)) {
        rc = -EBUSY;
    } else if (a.covered_by == 0) {
        rc = attach_links(p, &a, fd, l->links, a.site_count);
    }
    if (rc < 0) {
        release(p, &a);
        return rc;
    }
    p->files[p->file_count++] = a;
    return (int)a.site_count;
}

/* As attach_open_file, of the first function only and not for long. */
static int try_open_file(struct ltn_probes *p, const struct ltn_lib *lib, int fd, struct lookup *l)
{
    struct attached a;
    int rc = find_functions(p, lib, fd, l, &a);
    if (rc < 0) {
        return rc;
    }
    int count = (int)a.site_count;
    rc = attach_links(p, &a, fd, l->links, 1);
    release(p, &a);
    return rc < 0 ? rc : count;
}

/* What a failure to attach means for the user. */
static int say_failure(const struct ltn_probes *p, const struct ltn_lib *lib, int rc,
                       struct ltn_errinfo *info)
{
    if (rc == -EACCES && p->kind == LTN_LINK_PERF) {
        return ltn_errinfo_set(info, rc,
                               "cannot attach to %s: this kernel needs CAP_SYS_ADMIN for uprobes, "
                               "or Linux 6.6 or later with CAP_BPF and CAP_PERFMON",
                               lib->path);
    }
    if (rc == LTN_ERR_NOT_FOUND) {
        return ltn_errinfo_set(info, rc,
                               "cannot attach to %s: none of the traced functions is in it, or its "
                               "symbol tables were removed",
                               lib->path);
    }
    if (rc == -EIO) {
        return ltn_errinfo_set(info, rc, "cannot attach to %s: its file system cannot carry probes",
                               lib->path);
    }
    return ltn_errinfo_set(info, rc, "cannot attach to %s: %s", lib->path, ltn_err_str(rc));
}

typedef int (*open_file_fn)(struct ltn_probes *p, const struct ltn_lib *lib, int fd,
                            struct lookup *l);

static int with_file(struct ltn_probes *p, const struct ltn_lib *lib, open_file_fn fn,
                     struct ltn_errinfo *info)
{
    int fd = ltn_lib_open(lib);
    if (fd < 0) {
        return ltn_errinfo_set(info, fd, "cannot open %s: %s", lib->path, ltn_err_str(fd));
    }
    struct lookup *l = malloc(sizeof(*l));
    int rc = l == NULL ? -ENOMEM : fn(p, lib, fd, l);
    free(l);
    (void)close(fd);
    return rc < 0 ? say_failure(p, lib, rc, info) : rc;
}

int ltn_probes_attach(struct ltn_probes *p, const struct ltn_lib *lib, struct ltn_errinfo *info)
{
    const struct attached *known = find_file(p, lib->id);
    if (known != NULL) {
        return (int)known->site_count;
    }
    if (p->file_count == MAX_FILES) {
        return ltn_errinfo_set(info, LTN_ERR_COUNT, "%s: already attached to %d files", lib->path,
                               MAX_FILES);
    }
    return with_file(p, lib, attach_open_file, info);
}

int ltn_probes_try(struct ltn_probes *p, const struct ltn_lib *lib, struct ltn_errinfo *info)
{
    return with_file(p, lib, try_open_file, info);
}

bool ltn_probes_has(const struct ltn_probes *p, uint32_t lib_id)
{
    for (size_t i = 0; i < p->file_count; i++) {
        if (p->files[i].lib_id == lib_id) {
            return true;
        }
    }
    return false;
}

int ltn_probes_attach_site(struct ltn_probes *p, int fd, const struct ltn_link_site *site)
{
    if (p->file_count == MAX_FILES) {
        return LTN_ERR_COUNT;
    }
    struct attached a = {.lib_id = LTN_PROBES_OWN_FILE, .link_fds = {-1, -1}};
    int rc = attach_links(p, &a, fd, site, 1);
    if (rc < 0) {
        release(p, &a);
        return rc;
    }
    p->files[p->file_count++] = a;
    return 0;
}

bool ltn_probes_detach(struct ltn_probes *p, uint32_t lib_id)
{
    struct attached *gone = find_file(p, lib_id);
    if (gone == NULL) {
        return false;
    }
    release(p, gone);
    *gone = p->files[--p->file_count];
    bool uncovered = false;
    for (size_t i = 0; i < p->file_count;) {
        if (p->files[i].covered_by != lib_id) {
            i++;
            continue;
        }
        uncovered = true;
        release(p, &p->files[i]);
        p->files[i] = p->files[--p->file_count];
    }
    return uncovered;
}

int ltn_probes_add_pid(struct ltn_probes *p, pid_t pid)
{
    uint32_t key = (uint32_t)pid;
    uint32_t one = 1;
    int fd = bpf_map__fd(p->skel->maps.scope_tgids);
    return bpf_map_update_elem(fd, &key, &one, BPF_ANY) == 0 ? 0 : -errno;
}

int ltn_probes_del_pid(struct ltn_probes *p, pid_t pid)
{
    uint32_t key = (uint32_t)pid;
    int fd = bpf_map__fd(p->skel->maps.scope_tgids);
    return bpf_map_delete_elem(fd, &key) == 0 ? 0 : -errno;
}

void ltn_probes_set_off(struct ltn_probes *p, uint32_t off)
{
    __atomic_store_n(&p->skel->data->control.off, off, __ATOMIC_RELAXED);
}

uint32_t *ltn_probes_thin(struct ltn_probes *p)
{
    return (uint32_t *)&p->skel->data->control.thin;
}

const struct bpf_object *ltn_probes_object(const struct ltn_probes *p)
{
    return p->skel->obj;
}

/* ---- looking
 * ---------------------------------------------------------------------------------------------------------------
 */

struct ltn_probe_maps ltn_probes_maps(const struct ltn_probes *p)
{
    const struct agent *s = p->skel;
    return (struct ltn_probe_maps){
        .op_stats = bpf_map__fd(s->maps.op_stats),
        .threads = bpf_map__fd(s->maps.threads),
        .in_flight = bpf_map__fd(s->maps.in_flight),
        .processes = bpf_map__fd(s->maps.processes),
        .comms = bpf_map__fd(s->maps.comms),
        .preemptors = bpf_map__fd(s->maps.preemptors),
        .slow_ns = bpf_map__fd(s->maps.slow_ns),
        .impossible = bpf_map__fd(s->maps.impossible),
        .calls = bpf_map__fd(s->maps.calls),
        .critical = bpf_map__fd(s->maps.critical),
        .drops = bpf_map__fd(s->maps.drops),
        .seen = bpf_map__fd(s->maps.seen),
        .host_processes = bpf_map__fd(s->maps.host_processes),
        .host_block = bpf_map__fd(s->maps.host_block),
        .host_net = bpf_map__fd(s->maps.host_net),
        .host_retransmits = bpf_map__fd(s->maps.host_retransmits),
        .host_files = bpf_map__fd(s->maps.host_files),
        .stacks_sent = bpf_map__fd(s->maps.stacks_sent),
    };
}

void ltn_probes_info(const struct ltn_probes *p, struct ltn_probes_info *ret)
{
    *ret = (struct ltn_probes_info){
        .kind = p->kind,
        .sched = p->sched,
        .stacks = p->stacks,
        .map_bytes = p->map_bytes,
        .host = p->host,
    };
    ret->files = p->file_count;
    for (size_t i = 0; i < p->file_count; i++) {
        const struct attached *a = &p->files[i];
        ret->functions += a->site_count;
        for (size_t k = 0; k < a->site_count; k++) {
            ret->single_stepped += a->sites[k].site.kind == LTN_SITE_SINGLE_STEPPED;
        }
    }
}

uint64_t ltn_probes_map_bytes(const struct ltn_probes *p)
{
    return all_map_bytes(p->skel);
}

const struct ltn_probe_site *ltn_probes_next(const struct ltn_probes *p, size_t *pos)
{
    size_t at = (*pos)++;
    for (size_t i = 0; i < p->file_count; i++) {
        if (at < p->files[i].site_count) {
            return &p->files[i].sites[at];
        }
        at -= p->files[i].site_count;
    }
    return NULL;
}

const char *ltn_probes_note(const struct ltn_probes *p)
{
    return ltn_buf_str(&p->note);
}

const char *ltn_probes_host_note(const struct ltn_probes *p)
{
    return ltn_buf_str(&p->host_note);
}

const char *ltn_probes_family_name(uint32_t family)
{
    return ltn_families_name(family);
}
