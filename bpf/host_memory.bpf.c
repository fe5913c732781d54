/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Pages that watched processes take, and the time they spend freeing others first. */
#include "bpf/host.h"

#define ORDER_MAX 30

SEC("raw_tp/mm_page_alloc")
int on_page_alloc(struct bpf_raw_tracepoint_args *ctx)
{
    ltn_u64 page = ((ltn_u64 *)ctx)[0];
    ltn_u32 order = (ltn_u32)((ltn_u64 *)ctx)[1];
    struct ltn_host_process *p =
        page && order <= ORDER_MAX && !host_is_down() ? host_of_current() : 0;
    if (p) {
        add_to(&p->pages, 1ULL << order);
    }
    return 0;
}

SEC("raw_tp/mm_vmscan_direct_reclaim_begin")
int on_reclaim_begin(struct bpf_raw_tracepoint_args *ctx)
{
    if (host_is_down() || !host_of_current()) {
        return 0;
    }
    struct ltn_host_task *t = bpf_task_storage_get(&host_tasks, bpf_get_current_task_btf(), 0,
                                                   BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (t) {
        t->reclaim_ns = bpf_ktime_get_ns();
    }
    return 0;
}

SEC("raw_tp/mm_vmscan_direct_reclaim_end")
int on_reclaim_end(struct bpf_raw_tracepoint_args *ctx)
{
    struct ltn_host_task *t = bpf_task_storage_get(&host_tasks, bpf_get_current_task_btf(), 0, 0);
    struct ltn_host_process *p = t && t->reclaim_ns ? host_of_current() : 0;
    if (p) {
        add_to(&p->reclaims, 1);
        add_to(&p->reclaim_ns, bpf_ktime_get_ns() - t->reclaim_ns);
    }
    if (t) {
        t->reclaim_ns = 0;
    }
    return 0;
}
