/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "bpf/event.h"
#include "probe/families.h"
#include "probe/probes_internal.h"
#include "probe/state.h"
#include "probe/tracepoint.h"

#define NOTE_BYTES       1024
#define DEFAULT_RING     (4U * 1024 * 1024)
#define DEFAULT_SLOW_NS  LTN_NS_PER_MS
#define WAKE_AT_FRACTION 4 /* user space is woken when the ring is a quarter full */
#define THIN_AT_FRACTION 2 /* and records are thinned out from half of it on */

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
    uint32_t host =
        ltn_families_possible(LTN_HOST_ALL & ~o->host_off, o->files_by_syscall, &p->host_note);
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

void ltn_probes_free(struct ltn_probes *p)
{
    if (p == NULL) {
        return;
    }
    ltn_probes_release_all(p);
    agent__destroy(p->skel);
    ltn_buf_done(&p->note);
    ltn_buf_done(&p->host_note);
    free(p);
}

uint64_t ltn_probes_map_bytes(const struct ltn_probes *p)
{
    return all_map_bytes(p->skel);
}
