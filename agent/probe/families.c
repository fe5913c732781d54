/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/families.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/err.h"
#include "bpf/event.h"
#include "probe/tracepoint.h"

#include "agent.skel.h"

#define SKEL(member) offsetof(struct agent, member)

/* What a program is put on. Tracepoints of system calls live in tracefs, not in the kernel's type
 * information. */
enum place { TRACEPOINT, SYSCALL, FUNCTION };

/* Programs for the same thing on newer and on older kernels. */
enum variant {
    ALWAYS,
    SOCKET_TRACEPOINTS, /* Linux 6.3 */
    SOCKET_FUNCTIONS,   /* before it */
    OPEN_FUNCTION,      /* where programs may be put on functions */
    OPEN_TRACEPOINTS,   /* where not */
};

struct program {
    uint32_t family;
    enum place place;
    const char *name;
    int args;      /* that the program reads; of tracepoints */
    bool optional; /* may be missing */
    enum variant variant;
    size_t prog; /* of the pointers in the skeleton */
    size_t link;
};

#define PROGRAM(p) SKEL(progs.p), SKEL(links.p)
#define TP         TRACEPOINT
#define NEW        SOCKET_TRACEPOINTS
#define OLD        SOCKET_FUNCTIONS
#define OPEN       "do_sys_openat2"

static const struct program programs[] = {
    {LTN_HOST_BLOCK, TP, "block_bio_queue", 1, false, ALWAYS, PROGRAM(on_bio_queue)},
    {LTN_HOST_BLOCK, TP, "block_split", 1, true, ALWAYS, PROGRAM(on_bio_split)},
    {LTN_HOST_BLOCK, TP, "block_rq_issue", 1, false, ALWAYS, PROGRAM(on_block_issue)},
    {LTN_HOST_BLOCK, TP, "block_rq_complete", 3, false, ALWAYS, PROGRAM(on_block_complete)},
    {LTN_HOST_BLOCK, TP, "block_rq_requeue", 1, true, ALWAYS, PROGRAM(on_block_requeue)},
    {LTN_HOST_TCP, TP, "tcp_retransmit_skb", 2, false, ALWAYS, PROGRAM(on_retransmit)},
    {LTN_HOST_NET, TP, "sock_send_length", 3, false, NEW, PROGRAM(on_socket_send)},
    {LTN_HOST_NET, TP, "sock_recv_length", 3, false, NEW, PROGRAM(on_socket_receive)},
    {LTN_HOST_NET, FUNCTION, "inet_sendmsg", 0, false, OLD, PROGRAM(on_inet_send)},
    {LTN_HOST_NET, FUNCTION, "inet_recvmsg", 0, false, OLD, PROGRAM(on_inet_receive)},
    {LTN_HOST_NET, FUNCTION, "inet6_sendmsg", 0, true, OLD, PROGRAM(on_inet6_send)},
    {LTN_HOST_NET, FUNCTION, "inet6_recvmsg", 0, true, OLD, PROGRAM(on_inet6_receive)},
    {LTN_HOST_NET, FUNCTION, "unix_stream_sendmsg", 0, true, OLD, PROGRAM(on_unix_send)},
    {LTN_HOST_NET, FUNCTION, "unix_stream_recvmsg", 0, true, OLD, PROGRAM(on_unix_receive)},
    {LTN_HOST_NET, FUNCTION, "unix_dgram_sendmsg", 0, true, OLD, PROGRAM(on_unix_dgram_send)},
    {LTN_HOST_NET, FUNCTION, "unix_dgram_recvmsg", 0, true, OLD, PROGRAM(on_unix_dgram_receive)},
    {LTN_HOST_FILES, FUNCTION, OPEN, 0, false, OPEN_FUNCTION, PROGRAM(on_open_begin)},
    {LTN_HOST_FILES, FUNCTION, OPEN, 0, false, OPEN_FUNCTION, PROGRAM(on_open_end)},
    {LTN_HOST_FILES, SYSCALL, "sys_enter_openat", 0, false, OPEN_TRACEPOINTS, PROGRAM(on_openat)},
    {LTN_HOST_FILES, SYSCALL, "sys_exit_openat", 0, false, OPEN_TRACEPOINTS,
     PROGRAM(on_openat_done)},
    {LTN_HOST_FILES, SYSCALL, "sys_enter_open", 0, true, OPEN_TRACEPOINTS, PROGRAM(on_open)},
    {LTN_HOST_FILES, SYSCALL, "sys_exit_open", 0, true, OPEN_TRACEPOINTS, PROGRAM(on_open_done)},
    {LTN_HOST_MEMORY, TP, "mm_page_alloc", 2, false, ALWAYS, PROGRAM(on_page_alloc)},
    {LTN_HOST_MEMORY, TP, "mm_vmscan_direct_reclaim_begin", 1, true, ALWAYS,
     PROGRAM(on_reclaim_begin)},
    {LTN_HOST_MEMORY, TP, "mm_vmscan_direct_reclaim_end", 1, true, ALWAYS, PROGRAM(on_reclaim_end)},
};

static const struct {
    uint32_t family;
    const char *name;
    const char *missing; /* what a kernel lacks that cannot have it */
} families[] = {
    {LTN_HOST_BLOCK, "disks", "the kernel has no block layer"},
    {LTN_HOST_TCP, "TCP", "the kernel does not tell of segments sent again"},
    {LTN_HOST_NET, "sockets",
     "neither the tracepoints of Linux 6.3 nor the functions of older kernels are there"},
    {LTN_HOST_FILES, "files",
     "the tracepoints of system calls are not to be seen in /sys/kernel/tracing (tracefs)"},
    {LTN_HOST_MEMORY, "memory", "the kernel does not tell of page allocations"},
};

const char *ltn_families_name(uint32_t family)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(families); i++) {
        if (families[i].family == family) {
            return families[i].name;
        }
    }
    return "unknown";
}

static struct bpf_program *program_of(const struct agent *skel, const struct program *p)
{
    struct bpf_program *prog;
    memcpy(&prog, (const char *)skel + p->prog, sizeof(prog));
    return prog;
}

static struct bpf_link **link_of(struct agent *skel, const struct program *p)
{
    return (struct bpf_link **)(void *)((char *)skel + p->link);
}

static bool syscall_tracepoint_exists(const char *name)
{
    static const char *const roots[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
    char path[128];
    for (size_t i = 0; i < LTN_ARRAY_SIZE(roots); i++) {
        (void)snprintf(path, sizeof(path), "%s/events/syscalls/%s/id", roots[i], name);
        if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0) {
            return true;
        }
    }
    return false;
}

static bool exists(const struct program *p)
{
    switch (p->place) {
    case SYSCALL:
        return syscall_tracepoint_exists(p->name);
    case FUNCTION:
        return ltn_kernel_function_traceable(p->name);
    case TRACEPOINT:
        break;
    }
    return ltn_tracepoint_arg_count(p->name) >= p->args;
}

/* Is it one of those for this kernel? */
static bool is_meant(const struct program *p)
{
    switch (p->variant) {
    case SOCKET_TRACEPOINTS:
        return ltn_tracepoint_arg_count("sock_send_length") >= 0;
    case SOCKET_FUNCTIONS:
        return ltn_tracepoint_arg_count("sock_send_length") < 0;
    case OPEN_FUNCTION:
        return ltn_kernel_function_traceable(OPEN);
    case OPEN_TRACEPOINTS:
        return !ltn_kernel_function_traceable(OPEN);
    case ALWAYS:
        break;
    }
    return true;
}

static void note_line(struct ltn_buf *note, const char *name, const char *why)
{
    if (note != NULL) {
        (void)ltn_buf_printf(note, "%s%s: %s", note->len > 0 ? "; " : "", name, why);
    }
}

uint32_t ltn_families_possible(uint32_t wanted, bool by_syscall, struct ltn_buf *note)
{
    if ((wanted & LTN_HOST_FILES) && !by_syscall && !ltn_kernel_function_traceable(OPEN)) {
        wanted &= ~(uint32_t)LTN_HOST_FILES;
        note_line(
            note, ltn_families_name(LTN_HOST_FILES),
            "this kernel has only a way that makes every system call of the machine some 45 ns "
            "dearer; --files-by-syscall takes it");
    }
    uint32_t can = wanted;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(programs); i++) {
        const struct program *p = &programs[i];
        if ((wanted & p->family) && is_meant(p) && !p->optional && !exists(p)) {
            can &= ~p->family;
        }
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(families); i++) {
        if ((wanted & ~can) & families[i].family) {
            note_line(note, families[i].name, families[i].missing);
        }
    }
    return can;
}

void ltn_families_choose(struct agent *skel, uint32_t chosen)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(programs); i++) {
        const struct program *p = &programs[i];
        bool load = (chosen & p->family) != 0 && is_meant(p) && exists(p);
        (void)bpf_program__set_autoload(program_of(skel, p), load);
    }
    if (!(chosen & LTN_HOST_BLOCK)) {
        (void)bpf_map__set_max_entries(skel->maps.block_owners, 1);
    }
    if (!(chosen & LTN_HOST_NET)) {
        (void)bpf_map__set_max_entries(skel->maps.socket_owners, 1);
    }
}

static void take_back(struct agent *skel, uint32_t family)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(programs); i++) {
        struct bpf_link **link = link_of(skel, &programs[i]);
        if (programs[i].family == family) {
            (void)bpf_link__destroy(*link);
            *link = NULL;
        }
    }
}

uint32_t ltn_families_attach(struct agent *skel, uint32_t chosen, struct ltn_buf *note)
{
    uint32_t running = chosen;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(programs); i++) {
        const struct program *p = &programs[i];
        struct bpf_program *prog = program_of(skel, p);
        if (!(running & p->family) || !bpf_program__autoload(prog)) {
            continue;
        }
        struct bpf_link *link = bpf_program__attach(prog);
        if (link != NULL) {
            *link_of(skel, p) = link;
        } else if (!p->optional) {
            int rc = -errno;
            running &= ~p->family;
            take_back(skel, p->family);
            note_line(note, ltn_families_name(p->family), ltn_err_str(rc));
        }
    }
    return running;
}
