/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs on this node, kept up to date by a scan each second: processes that came and went, and
 * which of them map CUDA or NCCL. A scan lists /proc once; the maps of a process are read again
 * only when its address space changed size, looked at in intervals growing from 1 s to 10 s, and
 * every minute (5 minutes without CUDA) in any case. One thread at a time.
 */
#ifndef LTN_DISCOVER_SCAN_H
#define LTN_DISCOVER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "discover/libs.h"
#include "discover/proc.h"

enum ltn_scan_kind {
    LTN_SCAN_PROC_NEW,     /* proc: a process in scope */
    LTN_SCAN_PROC_EXEC,    /* proc: the same process runs another program now */
    LTN_SCAN_PROC_GONE,    /* proc: ended; follows its LIB_UNMAPPED events */
    LTN_SCAN_LIB_NEW,      /* lib: first seen in any process; precedes LIB_MAPPED */
    LTN_SCAN_LIB_MAPPED,   /* proc, lib */
    LTN_SCAN_LIB_UNMAPPED, /* proc, lib */
    LTN_SCAN_LIB_GONE,     /* lib: no process maps it any more */
};

/* proc and lib are valid during the call only (copy what is needed); NULL where not named above. */
struct ltn_scan_event {
    enum ltn_scan_kind kind;
    const struct ltn_proc *proc;
    const struct ltn_lib *lib;
};
typedef void (*ltn_scan_fn)(const struct ltn_scan_event *event, void *arg);

struct ltn_scan_stats {
    uint64_t scans_total;
    uint64_t maps_read_total;
    uint64_t maps_bytes_total;
    uint64_t maps_denied_total;   /* no permission: processes the agent cannot judge */
    uint64_t maps_cut_total;      /* longer than the ceiling, judged by their first part */
    uint64_t procs_refused_total; /* over the ceiling on processes */
    uint64_t libs_refused_total;  /* over the ceiling on library files or users */
    uint64_t no_memory_total;
    uint64_t last_scan_ns;
    uint64_t last_scan_cpu_ns; /* thread CPU time of the last scan */
    size_t procs_now;          /* known, in or out of scope */
    size_t procs_in_scope;
    size_t procs_with_cuda; /* map at least one file of interest */
    size_t procs_hidden;    /* in scope, but their mappings may not be read */
};

struct ltn_scanner;

/* Scanner with a copy of the scope, leaving out the agent itself. NULL when memory is out. Free
 * with ltn_scanner_free (no events). */
struct ltn_scanner *ltn_scanner_new(const struct ltn_scope *scope) ltn_must_check;
void ltn_scanner_free(struct ltn_scanner *s);

/* Brings the picture up to date and tells fn about each change; fn must not call the scanner. 0 or
 * -errno when /proc cannot be listed. now_mono_ns: the present (ltn_now_mono_ns). */
int ltn_scanner_scan(struct ltn_scanner *s, uint64_t now_mono_ns, ltn_scan_fn fn,
                     void *arg) ltn_must_check;

/* From now on (or, with on = false, no longer) every scan looks at every process, however long it
 * has been quiet: for when nobody tells of new mappings. Costs some 10 us a process and scan. */
void ltn_scanner_look_at_all(struct ltn_scanner *s, bool on);

/* Looks at one process at once, without a scan: one that may just have been started, or that mapped
 * something. Tells fn about what changed, as a scan does; fn must not call the scanner. */
void ltn_scanner_look(struct ltn_scanner *s, pid_t pid, uint64_t now_mono_ns, ltn_scan_fn fn,
                      void *arg);

/* Is the program that this process runs known to carry nothing of interest? False when that is not
 * known. Cheap: for deciding whether an exec is worth ltn_scanner_look. */
bool ltn_scanner_program_is_plain(const struct ltn_scanner *s, pid_t pid);

/* The next scan looks at this process whatever its interval (after an exec or a dlopen seen by a
 * probe). Unknown pids are ignored. */
void ltn_scanner_poke(struct ltn_scanner *s, pid_t pid);

/* Process by pid, or NULL when not known or out of scope; valid until the next scan. Walk: start
 * with *pos = 0; NULL at the end. */
const struct ltn_proc *ltn_scanner_proc(const struct ltn_scanner *s, pid_t pid);
const struct ltn_proc *ltn_scanner_next(const struct ltn_scanner *s, size_t *pos);

/* Does the process map at least one file of interest? */
bool ltn_scanner_has_cuda(const struct ltn_scanner *s, pid_t pid);

/* The registry of library files; owned by the scanner. ltn_libs_give may be called on it. */
struct ltn_libs *ltn_scanner_libs(struct ltn_scanner *s);

void ltn_scanner_stats(const struct ltn_scanner *s, struct ltn_scan_stats *ret);

#endif /* LTN_DISCOVER_SCAN_H */
