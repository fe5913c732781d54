/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpf/event.h"
#include "probe/ops.h"
#include "probe/probes_internal.h"
#include "probe/state.h"

#define SYMBOLS_MAX    512
#define PERF_LINKS_MAX 512 /* closing one takes about 100 ms */

/* What is looked for in a file, and what came of it. */
struct lookup {
    struct ltn_elf_sym syms[SYMBOLS_MAX];
    uint64_t cookies[SYMBOLS_MAX];
    struct ltn_link_site links[SYMBOLS_MAX];
};

static void *close_links(void *arg)
{
    struct ltn_closing *c = arg;
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
    struct ltn_closing **at = &p->closing;
    while (*at != NULL) {
        struct ltn_closing *c = *at;
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
static void close_aside(struct ltn_probes *p, const struct ltn_attached *a)
{
    reap(p, false);
    struct ltn_closing *c = a->perf_link_count > 0 ? calloc(1, sizeof(*c)) : NULL;
    if (c != NULL) {
        *c = (struct ltn_closing){.links = a->perf_links,
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
    const struct ltn_closing *c = p->closing;
    while (c != NULL && !ltn_file_id_same(&c->file, file)) {
        c = c->next;
    }
    return c != NULL;
}

static void release(struct ltn_probes *p, struct ltn_attached *a)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(a->link_fds); i++) {
        if (a->link_fds[i] >= 0) {
            (void)close(a->link_fds[i]);
        }
    }
    close_aside(p, a);
    free(a->sites);
}

void ltn_probes_release_all(struct ltn_probes *p)
{
    for (size_t i = 0; i < p->file_count; i++) {
        release(p, &p->files[i]);
    }
    reap(p, true);
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

static int attach_perf(struct ltn_probes *p, struct ltn_attached *a, int fd,
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

static int attach_links(struct ltn_probes *p, struct ltn_attached *a, int fd,
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

static struct ltn_attached *find_file(struct ltn_probes *p, uint32_t lib_id)
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
 * everybody. Only overlays are asked that: of a copy that is a file of its own, a breakpoint would
 * be somebody else's. */
static uint32_t covering_twin(const struct ltn_probes *p, const struct ltn_lib *lib,
                              const struct ltn_attached *own, uint64_t offset_bytes)
{
    uint32_t likely = 0;
    for (size_t i = 0; i < p->file_count && lib->twin_id != 0; i++) {
        const struct ltn_attached *a = &p->files[i];
        if (a->covered_by != 0 || a->build_id_len != lib->build_id_len ||
            memcmp(a->build_id, lib->build_id, lib->build_id_len) != 0) {
            continue;
        }
        if (ltn_file_id_same(&a->file, &own->file)) {
            return a->lib_id;
        }
        if (likely == 0 && (a->file.overlay || own->file.overlay)) {
            likely = a->lib_id;
        }
    }
    bool probed = likely != 0 && lib->user_count > 0 &&
                  ltn_lib_is_probed(lib, lib->users[0].pid, offset_bytes) == 1;
    return probed ? likely : 0;
}

/* Fills l and *a with the functions of the open file. */
static int find_functions(struct ltn_probes *p, const struct ltn_lib *lib, int fd, struct lookup *l,
                          struct ltn_attached *a)
{
    struct ltn_elf *elf = NULL;
    int rc = ltn_elf_open_fd(fd, &elf);
    if (rc < 0) {
        return rc;
    }
    size_t count = collect_names(lib, p->kind, l);
    rc = ltn_lib_lookup(lib, elf, l->syms, count);
    *a = (struct ltn_attached){
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
    struct ltn_attached a;
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
    struct ltn_attached a;
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
    const struct ltn_attached *known = find_file(p, lib->id);
    if (known != NULL) {
        return (int)known->site_count;
    }
    if (p->file_count == LTN_PROBE_FILES_MAX) {
        return ltn_errinfo_set(info, LTN_ERR_COUNT, "%s: already attached to %d files", lib->path,
                               LTN_PROBE_FILES_MAX);
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
    if (p->file_count == LTN_PROBE_FILES_MAX) {
        return LTN_ERR_COUNT;
    }
    struct ltn_attached a = {.lib_id = LTN_PROBES_OWN_FILE, .link_fds = {-1, -1}};
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
    struct ltn_attached *gone = find_file(p, lib_id);
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
