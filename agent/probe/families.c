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

/* One program. args 0: a tracepoint of a system call, which lives in tracefs and not in the
 * kernel's type information. Optional ones may be missing. */
struct program {
    uint32_t family;
    const char *tracepoint;
    int args; /* that the program reads */
    bool optional;
    size_t prog; /* of the pointers in the skeleton */
    size_t link;
};

static const struct program programs[] = {
    {LTN_HOST_BLOCK, "block_bio_queue", 1, false, SKEL(progs.on_bio_queue),
     SKEL(links.on_bio_queue)},
    {LTN_HOST_BLOCK, "block_rq_issue", 1, false, SKEL(progs.on_block_issue),
     SKEL(links.on_block_issue)},
    {LTN_HOST_BLOCK, "block_rq_complete", 3, false, SKEL(progs.on_block_complete),
     SKEL(links.on_block_complete)},
    {LTN_HOST_BLOCK, "block_rq_requeue", 1, true, SKEL(progs.on_block_requeue),
     SKEL(links.on_block_requeue)},
    {LTN_HOST_TCP, "tcp_retransmit_skb", 2, false, SKEL(progs.on_retransmit),
     SKEL(links.on_retransmit)},
    {LTN_HOST_NET, "sock_send_length", 3, false, SKEL(progs.on_socket_send),
     SKEL(links.on_socket_send)},
    {LTN_HOST_NET, "sock_recv_length", 3, false, SKEL(progs.on_socket_receive),
     SKEL(links.on_socket_receive)},
    {LTN_HOST_FILES, "sys_enter_openat", 0, false, SKEL(progs.on_openat), SKEL(links.on_openat)},
    {LTN_HOST_FILES, "sys_exit_openat", 0, false, SKEL(progs.on_openat_done),
     SKEL(links.on_openat_done)},
    {LTN_HOST_FILES, "sys_enter_open", 0, true, SKEL(progs.on_open), SKEL(links.on_open)},
    {LTN_HOST_FILES, "sys_exit_open", 0, true, SKEL(progs.on_open_done), SKEL(links.on_open_done)},
    {LTN_HOST_MEMORY, "mm_page_alloc", 2, false, SKEL(progs.on_page_alloc),
     SKEL(links.on_page_alloc)},
    {LTN_HOST_MEMORY, "mm_vmscan_direct_reclaim_begin", 1, true, SKEL(progs.on_reclaim_begin),
     SKEL(links.on_reclaim_begin)},
    {LTN_HOST_MEMORY, "mm_vmscan_direct_reclaim_end", 1, true, SKEL(progs.on_reclaim_end),
     SKEL(links.on_reclaim_end)},
};

static const struct {
    uint32_t family;
    const char *name;
    const char *missing; /* what a kernel lacks that cannot have it */
} families[] = {
    {LTN_HOST_BLOCK, "disks", "the kernel has no block layer"},
    {LTN_HOST_TCP, "TCP", "the kernel does not tell of segments sent again"},
    {LTN_HOST_NET, "sockets", "needs Linux 6.3 or later (sock_send_length)"},
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
    return p->args == 0 ? syscall_tracepoint_exists(p->tracepoint)
                        : ltn_tracepoint_arg_count(p->tracepoint) >= p->args;
}

static void note_line(struct ltn_buf *note, const char *name, const char *why)
{
    if (note != NULL) {
        (void)ltn_buf_printf(note, "%s%s: %s", note->len > 0 ? "; " : "", name, why);
    }
}

uint32_t ltn_families_possible(uint32_t wanted, struct ltn_buf *note)
{
    uint32_t can = wanted;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(programs); i++) {
        if ((wanted & programs[i].family) && !programs[i].optional && !exists(&programs[i])) {
            can &= ~programs[i].family;
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
        bool load = (chosen & programs[i].family) != 0 && exists(&programs[i]);
        (void)bpf_program__set_autoload(program_of(skel, &programs[i]), load);
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
