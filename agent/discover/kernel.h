/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this kernel and these privileges allow, found by trying, never by version strings; each
 * finding says what to do. Creates and closes a few BPF objects, changes nothing. Thread-safe.
 */
#ifndef LTN_DISCOVER_KERNEL_H
#define LTN_DISCOVER_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum ltn_finding_level { LTN_FINDING_OK, LTN_FINDING_WARN, LTN_FINDING_FAIL };

struct ltn_finding {
    const char *name; /* "btf", "bpf", "capabilities", ...; static storage, stable for scripts */
    enum ltn_finding_level level;
    char value[160];  /* what was found */
    char advice[256]; /* what to do about it; "" when nothing is to be done */
};

#define LTN_KERNEL_FINDINGS 16

struct ltn_kernel_facts {
    bool btf;                      /* /sys/kernel/btf/vmlinux can be read */
    bool bpf_map;                  /* a BPF map can be created */
    bool bpf_load;                 /* a kprobe-type program can be loaded */
    int bpf_map_error;             /* 0 or -errno */
    int bpf_load_error;            /* 0 or -errno */
    bool uprobe_multi;             /* link type exists and is permitted */
    bool uprobe_multi_pid;         /* its pid filter selects whole processes (fixed kernels) */
    bool uprobe_session;           /* session links exist and are permitted */
    bool uprobe_perf;              /* perf_event_open of a uprobe is permitted */
    int uprobe_perf_error;         /* 0 or -errno */
    bool raw_tracepoint;           /* a raw tracepoint program attaches */
    uint64_t cap_effective;        /* bits as in /proc/self/status */
    uint32_t seccomp_mode;         /* 0 none, 1 strict, 2 filter */
    int ptrace_scope;              /* Yama; -1 = no Yama */
    int perf_event_paranoid;       /* -1 = not known */
    int unprivileged_bpf_disabled; /* -1 = not known */
    bool host_pid_ns;              /* the agent sees the initial pid namespace */
    size_t finding_count;
    struct ltn_finding findings[LTN_KERNEL_FINDINGS];
};

/* Tries everything. Never fails: what cannot be tried becomes a finding. About 50 ms. */
void ltn_kernel_probe(struct ltn_kernel_facts *ret);

/* "ok", "warn", "fail"; static storage. */
const char *ltn_finding_level_name(enum ltn_finding_level level);

/* "CAP_BPF" for 39 and so on; NULL for a number this build does not know. Static storage. */
const char *ltn_cap_name(unsigned cap);

#endif /* LTN_DISCOVER_KERNEL_H */
