/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Files that watched processes open: how many and how long, and by path those that failed or were
 * slow. */
#include "bpf/host.h"

#define ENOENT_NR 2

/* Context of the tracepoints of one system call. */
struct ltn_syscall_enter {
    ltn_u64 common;
    ltn_u64 nr;
    ltn_u64 args[6];
};
struct ltn_syscall_exit {
    ltn_u64 common;
    ltn_u64 nr;
    long result;
};

struct ltn_file_scratch {
    struct ltn_file_stats stats;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, ltn_u32);
    __type(value, struct ltn_file_scratch);
} file_scratch SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct ltn_file_key);
    __type(value, struct ltn_file_stats);
} host_files SEC(".maps");

static __always_inline void open_begins(ltn_u64 path)
{
    if (host_is_down()) {
        return;
    }
    if (!host_of_current()) {
        return;
    }
    struct ltn_host_task *t = bpf_task_storage_get(&host_tasks, bpf_get_current_task_btf(), 0,
                                                   BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!t) {
        count_drop(LTN_DROP_MAP_HOST);
        return;
    }
    t->open_path = path;
    t->open_ns = bpf_ktime_get_ns();
}

/* The path is read at the exit: at the entry its page may not be there yet. The buffer is zero
 * behind it, so that equal paths are equal words. */
static __always_inline struct ltn_file_stats *read_path(ltn_u64 path, ltn_u64 *ret_hash)
{
    ltn_u32 zero = 0;
    struct ltn_file_scratch *scratch = bpf_map_lookup_elem(&file_scratch, &zero);
    if (!scratch) {
        return 0;
    }
    struct ltn_file_stats *s = &scratch->stats;
    __builtin_memset(s, 0, sizeof(*s));
    if (bpf_probe_read_user_str(s->path, sizeof(s->path), (const void *)path) < 0) {
        count_drop(LTN_DROP_ARGUMENT);
    }
    ltn_u64 hash = 0xcbf29ce484222325ULL;
    const ltn_u64 *word = (const ltn_u64 *)s->path;
#pragma unroll
    for (ltn_u32 i = 0; i < LTN_FILE_PATH_BYTES / 8; i++) {
        hash = (hash ^ word[i]) * 0x100000001b3ULL;
        hash ^= hash >> 29;
    }
    *ret_hash = hash;
    return s;
}

static __always_inline void tell_path(struct ltn_host_process *p, ltn_u64 path, long result,
                                      ltn_u64 spent_ns)
{
    struct ltn_file_key key = {.tgid = (ltn_u32)(bpf_get_current_pid_tgid() >> 32)};
    struct ltn_file_stats *fresh = read_path(path, &key.path_hash);
    struct ltn_file_stats *s = fresh ? bpf_map_lookup_elem(&host_files, &key) : 0;
    if (fresh && !s) {
        bpf_map_update_elem(&host_files, &key, fresh, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&host_files, &key);
    }
    if (!s) {
        add_to(&p->opens_untold, 1);
        return;
    }
    add_to(&s->spent_ns, spent_ns);
    if (spent_ns > s->max_ns) {
        s->max_ns = spent_ns;
    }
    if (spent_ns >= config.open_slow_ns) {
        add_to(&s->slow, 1);
    }
    if (result < 0) {
        add_to(&s->failed, 1);
        s->last_errno = (ltn_s32)-result;
        if (result == -ENOENT_NR) {
            add_to(&s->missing, 1);
        }
    }
}

static __always_inline void open_ends(long result)
{
    struct ltn_host_task *t = bpf_task_storage_get(&host_tasks, bpf_get_current_task_btf(), 0, 0);
    if (!t || !t->open_path) {
        return;
    }
    ltn_u64 path = t->open_path;
    ltn_u64 spent_ns = bpf_ktime_get_ns() - t->open_ns;
    t->open_path = 0;
    struct ltn_host_process *p = host_of_current();
    if (!p) {
        return;
    }
    add_to(&p->opens, 1);
    add_to(&p->open_ns, spent_ns);
    if (result < 0) {
        add_to(&p->opens_failed, 1);
        if (result == -ENOENT_NR) {
            add_to(&p->opens_missing, 1);
        }
    }
    if (spent_ns >= config.open_slow_ns) {
        add_to(&p->opens_slow, 1);
    }
    if (result < 0 || spent_ns >= config.open_slow_ns) {
        tell_path(p, path, result, spent_ns);
    }
}

/* Where the kernel lets programs onto its functions: nobody but who opens a file pays. */
SEC("fentry/do_sys_openat2")
int BPF_PROG(on_open_begin, int dfd, const char *path)
{
    open_begins((ltn_u64)path);
    return 0;
}

SEC("fexit/do_sys_openat2")
int BPF_PROG(on_open_end, int dfd, const char *path, void *how, long result)
{
    open_ends((int)result);
    return 0;
}

/* Elsewhere the tracepoints of the calls themselves, which slow down every system call a little: a
 * program on the one of all of them would do so a lot. */
SEC("tp/syscalls/sys_enter_openat")
int on_openat(struct ltn_syscall_enter *ctx)
{
    open_begins(ctx->args[1]);
    return 0;
}

SEC("tp/syscalls/sys_exit_openat")
int on_openat_done(struct ltn_syscall_exit *ctx)
{
    open_ends(ctx->result);
    return 0;
}

/* arm64 has no such call. */
SEC("tp/syscalls/sys_enter_open")
int on_open(struct ltn_syscall_enter *ctx)
{
    open_begins(ctx->args[0]);
    return 0;
}

SEC("tp/syscalls/sys_exit_open")
int on_open_done(struct ltn_syscall_exit *ctx)
{
    open_ends(ctx->result);
    return 0;
}
