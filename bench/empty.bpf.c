/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Programs that do nothing: what a probe costs whatever it measures. */
#include "bpf/kernel_types.h"

#include <bpf/bpf_helpers.h>

SEC("uprobe")
int empty_enter(void *ctx)
{
    return 0;
}

SEC("uretprobe")
int empty_return(void *ctx)
{
    return 0;
}

SEC("uprobe")
int empty_multi_enter(void *ctx)
{
    return 0;
}

SEC("uretprobe")
int empty_multi_return(void *ctx)
{
    return 0;
}

/* The answer 0 at entry asks for the return. */
SEC("uprobe")
int empty_session(void *ctx)
{
    return 0;
}

char ltn_bench_license[] SEC("license") = "Dual BSD/GPL";
