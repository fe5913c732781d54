/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a process is, read once from /proc/PID, and whether it is one of those to be traced. Every
 * file is read with a ceiling; text from the process is cleaned. Thread-safe.
 */
#ifndef LTN_DISCOVER_PROC_H
#define LTN_DISCOVER_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"

#define LTN_PROC_COMM_BYTES   16
#define LTN_PROC_EXE_BYTES    256
#define LTN_PROC_CGROUP_BYTES 384

struct ltn_proc {
    pid_t pid;                          /* as this agent's /proc shows it */
    pid_t ppid;                         /* parent when it was read */
    pid_t ns_pid;                       /* pid inside its own (innermost) pid namespace */
    uint32_t pid_ns_level;              /* namespaces between the agent's and its own; 0 = same */
    uid_t uid;                          /* real user id */
    bool kernel_thread;                 /* has no memory of its own, never traced */
    uint64_t start_ticks;               /* clock ticks since boot: with pid, the incarnation */
    uint64_t start_unix_ns;             /* ltn_proc_start_unix_ns of it */
    uint64_t vsize_bytes;               /* mapped address space when it was read */
    uint64_t cgroup_id;                 /* inode of the cgroup v2 directory; 0 = not known */
    uint64_t netns_ino;                 /* 0 = not allowed to see */
    uint64_t pidns_ino;                 /* 0 = not allowed to see */
    char comm[LTN_PROC_COMM_BYTES];     /* cleaned */
    char exe[LTN_PROC_EXE_BYTES];       /* in the process's own view, cleaned; "" = not allowed */
    char cgroup[LTN_PROC_CGROUP_BYTES]; /* cgroup v2 path, cleaned; "" = v1 only or not known */
};

/* Reads everything about a process. 0, -ESRCH when it does not exist, LTN_ERR_MALFORMED. Fields
 * that the privileges do not allow stay empty; that is no error. */
int ltn_proc_read(pid_t pid, struct ltn_proc *ret) ltn_must_check;

/* Reads only what stands in /proc/PID/stat: pid, ppid, comm, start_*, vsize_bytes, kernel_thread;
 * the rest of *ret is zero. Errors as above. About a tenth of the price. */
int ltn_proc_read_stat(pid_t pid, struct ltn_proc *ret) ltn_must_check;

/* Reads only the real user id. Errors as above. */
int ltn_proc_read_uid(pid_t pid, uid_t *ret) ltn_must_check;

/* Takes a text in the form of /proc/PID/stat (len bytes) apart; pure. 0 or LTN_ERR_MALFORMED.
 * start_unix_ns is left 0. */
int ltn_proc_parse_stat(const char *text, size_t len, struct ltn_proc *ret) ltn_must_check;

/* Start of a process as the identity of its incarnation, Unix time: the kernel's boot time (whole
 * seconds, read once per program) plus the ticks. The same for every caller and every agent since
 * the machine's boot, unless the clock is set between two agents; up to a second before the true
 * moment. 0 when the system does not say its clock tick. */
uint64_t ltn_proc_start_unix_ns(uint64_t start_ticks);

/* Ticks, rounded as /proc/PID/stat rounds them, of a start time that the kernel gave in nanoseconds
 * since boot. */
uint64_t ltn_proc_boottime_to_ticks(uint64_t boottime_ns);

/* Most pids a scope can name. */
#define LTN_SCOPE_PIDS 64

/* Which processes are to be traced. Each condition that is set must hold; an empty scope holds for
 * every process. */
struct ltn_scope {
    pid_t pids[LTN_SCOPE_PIDS]; /* these and all their descendants */
    size_t pid_count;           /* 0 = no condition */
    bool by_uid;
    uid_t uid;
    char cgroup_path[LTN_PROC_CGROUP_BYTES]; /* this cgroup v2 path and all below; "" = none */
};

/* Does the process itself meet the scope? parent_in_scope says whether its parent is being traced
 * because of the pid list (pass false when not known). Pure. */
bool ltn_scope_matches(const struct ltn_scope *scope, const struct ltn_proc *proc,
                       bool parent_in_scope);

/* True when the pid, or one of its ancestors in /proc (64 steps at most), is on the pid list. */
bool ltn_scope_has_ancestor(const struct ltn_scope *scope, pid_t pid);

#endif /* LTN_DISCOVER_PROC_H */
