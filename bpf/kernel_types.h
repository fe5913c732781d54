/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The members of kernel types that the programs read. Names and kinds must match the running
 * kernel; order, padding and missing members need not: the loader relocates every access (CO-RE).
 */
#ifndef LTN_BPF_KERNEL_TYPES_H
#define LTN_BPF_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#define __VMLINUX_H__ /* bpf_tracing.h then uses the kernel's register names below */

enum bpf_map_type {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
};
enum {
    BPF_F_NO_PREALLOC = 1,
};
enum {
    BPF_F_USER_STACK = 1 << 8,
};
enum {
    BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
enum {
    BPF_RB_NO_WAKEUP = 1,
    BPF_RB_FORCE_WAKEUP = 2,
    BPF_RB_AVAIL_DATA = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
#if defined(__TARGET_ARCH_x86)
    unsigned long di, si, dx, cx, r8, r9, ax, ip, sp, orig_ax;
#elif defined(__TARGET_ARCH_arm64)
    int syscallno;
#endif
};

#if defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
    __u64 regs[31];
    __u64 sp;
    __u64 pc;
    __u64 pstate;
};
#endif

struct kernfs_node {
    __u64 id;
};
struct cgroup {
    struct kernfs_node *kn;
};
struct css_set {
    struct cgroup *dfl_cgrp;
};
struct sched_info {
    unsigned long long run_delay;
    unsigned long long last_arrival;
};
struct sched_entity {
    __u64 sum_exec_runtime;
};
typedef struct {
    int counter;
} atomic_t;
struct signal_struct {
    atomic_t live;
    unsigned int flags;
};
struct thread_struct {
#if defined(__TARGET_ARCH_x86)
    unsigned long fsbase;
#elif defined(__TARGET_ARCH_arm64)
    struct {
        unsigned long tp_value;
    } uw;
#endif
};
struct mm_struct {
    unsigned long start_code;
    unsigned long start_stack;
};
struct gendisk {
    int major;
    int first_minor;
    char disk_name[32];
};
struct request_queue {
    struct gendisk *disk;
};
struct bio {
    void *bi_private;
};
struct request {
    struct request_queue *q;
    struct bio *bio;
    unsigned int cmd_flags;
    unsigned int __data_len;
    __u64 start_time_ns;
};
struct in6_addr {
    union {
        __u8 u6_addr8[16];
    } in6_u;
};
struct sock_common {
    __be32 skc_daddr;
    __be32 skc_rcv_saddr;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    volatile unsigned char skc_state;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
};
struct sock {
    struct sock_common __sk_common;
    __u16 sk_protocol;
};
struct msghdr;
struct socket {
    struct sock *sk;
};
struct task_struct {
    struct thread_struct thread;
    unsigned int __state;
    int pid;
    int tgid;
    int exit_code;
    unsigned in_iowait : 1;
    char comm[16];
    struct sched_entity se;
    struct sched_info sched_info;
    __u64 start_boottime;
    __u64 self_exec_id;
    unsigned long nvcsw;
    unsigned long min_flt;
    unsigned long maj_flt;
    struct mm_struct *mm;
    struct task_struct *real_parent;
    struct task_struct *group_leader;
    struct signal_struct *signal;
    struct css_set *cgroups;
};

#pragma clang attribute pop

#endif /* LTN_BPF_KERNEL_TYPES_H */
