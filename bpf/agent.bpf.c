/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The one object the agent loads: the families share maps, so they are one translation unit. */
#include "bpf/calls.bpf.c"
#include "bpf/sched.bpf.c"
#include "bpf/process.bpf.c"
#include "bpf/host_block.bpf.c"
#include "bpf/host_files.bpf.c"
#include "bpf/host_memory.bpf.c"
#include "bpf/host_net.bpf.c"

char ltn_license[] SEC("license") = "Dual BSD/GPL";
