/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel programs of the agent: loads them, attaches them to the libraries that discover found,
 * and gives access to their maps. Links reach every process that maps a library's file, so nothing
 * has to be done when another process starts using it. One thread at a time; the map descriptors
 * may be used from any thread.
 */
#ifndef LTN_PROBE_PROBES_H
#define LTN_PROBE_PROBES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "bpf/python_event.h"
#include "discover/libs.h"
#include "probe/links.h"
#include "probe/site.h"

struct ltn_probes_opts {
    uint32_t scope_mode; /* LTN_SCOPE_* of bpf/event.h, 0 = every process */
    uint64_t scope_cgroup_id;
    uint32_t scope_cgroup_level;
    uint32_t scope_uid;
    uint32_t ring_bytes;   /* 0 = 4 MiB; a power of two, at least a page */
    uint32_t sample_every; /* see struct ltn_bpf_config */
    bool keep_all;         /* never thin records out, whatever the ring's fill */
    bool force_kind;       /* use only link kind `kind`, for tests and for finding out */
    enum ltn_link_kind kind;
    uint32_t host_off;     /* LTN_HOST_*: host families not wanted */
    bool files_by_syscall; /* watch files also where all system calls pay for it */
    uint64_t open_slow_ns; /* from which an open is told by its path; 0 = 1 ms */
    bool no_stacks;        /* records without stacks, for good */
    bool no_sched; /* leave sched_switch alone; time off the CPU is then estimated from the task's
                      clock */
};

struct ltn_probes;

/* Loads the programs, with the best kind of link this kernel and these privileges allow, and
 * attaches the scheduler and process programs. What is optional and fails is noted
 * (ltn_probes_note). 0, or a negative code with the reason and what to do in *info. Free with
 * ltn_probes_free. */
int ltn_probes_new(const struct ltn_probes_opts *opts, struct ltn_probes **ret,
                   struct ltn_errinfo *info) ltn_must_check;

/* Detaches everything and frees. With perf links this takes about 100 ms a link, also of those
 * still being detached. NULL is ignored.
 */
void ltn_probes_free(struct ltn_probes *p);

/* Attaches to every function of ops.def in the file. A file that is attached already, or whose twin
 * (the same file through another overlay mount) already covers it, counts as done. Returns the
 * number of functions attached, or a negative code with the reason in *info: LTN_ERR_NOT_FOUND when
 * the file holds none of the functions, -EBUSY while its perf links of before are being closed. */
int ltn_probes_attach(struct ltn_probes *p, const struct ltn_lib *lib,
                      struct ltn_errinfo *info) ltn_must_check;

/* Would attaching to the file work? Attaches to one function for a moment. Returns how many
 * functions there are, or as ltn_probes_attach. */
int ltn_probes_try(struct ltn_probes *p, const struct ltn_lib *lib,
                   struct ltn_errinfo *info) ltn_must_check;

/* Is the file attached, by links of its own or those of its twin? */
bool ltn_probes_has(const struct ltn_probes *p, uint32_t lib_id);

/* Detaches from the file; unknown ids are ignored. True when files that its links covered are to
 * be attached anew: they no longer count as attached. */
bool ltn_probes_detach(struct ltn_probes *p, uint32_t lib_id);

/* Adds a process to, or takes it from, the ones traced when scope_mode has LTN_TRACE_PIDS. 0 or
 * -errno. */
int ltn_probes_add_pid(struct ltn_probes *p, pid_t pid) ltn_must_check;
int ltn_probes_del_pid(struct ltn_probes *p, pid_t pid);

/* Makes the kernel send a stack again when it is met again. Any thread. */
void ltn_probes_forget_stack(const struct ltn_probes *p, uint64_t stack_id);

/* Tells the kernel how to find the Python frames of a process, and asks what it knows (false:
 * nothing). It forgets by itself when the process ends or calls exec, and knows of children made by
 * fork. set: 0 or -errno. forget_code makes it tell of a code object again. Any thread. */
int ltn_probes_set_python(const struct ltn_probes *p, pid_t pid,
                          const struct ltn_python_process *python) ltn_must_check;
bool ltn_probes_get_python(const struct ltn_probes *p, pid_t pid, struct ltn_python_process *ret);
void ltn_probes_forget_code(const struct ltn_probes *p, uint64_t identity);

/* Descriptors of the maps, for reading by libbpf calls; owned by p. */
struct ltn_probe_maps {
    int op_stats;
    int threads;
    int in_flight;
    int processes;
    int comms;
    int graphs;
    int preemptors;
    int slow_ns;
    int impossible;
    int calls;
    int critical;
    int drops;
    int seen;
    int host_processes;
    int host_block;
    int host_net;
    int host_retransmits;
    int host_files;
    int stacks_sent;
};
struct ltn_probe_maps ltn_probes_maps(const struct ltn_probes *p);

/* Turns parts of the programs down (LTN_DOWN_* of bpf/event.h) or up again, for every process.
 * Costs nothing, takes effect with the next call. */
void ltn_probes_set_off(struct ltn_probes *p, uint32_t off);

/* Where the programs look up how much records are thinned out; may be written (with an atomic
 * store) from any thread while p lives. 1, 10 or 100. */
uint32_t *ltn_probes_thin(struct ltn_probes *p);

/* What is attached: link kind, functions, files, functions whose site is single-stepped, bytes of
 * all maps, whether sched_switch runs. */
struct ltn_probes_info {
    enum ltn_link_kind kind;
    size_t files;
    size_t functions;
    size_t single_stepped;
    uint64_t map_bytes; /* as of load; ltn_probes_map_bytes looks again */
    bool sched;
    uint32_t host; /* LTN_HOST_* that run */
    bool stacks;   /* the programs can take stacks */
};
void ltn_probes_info(const struct ltn_probes *p, struct ltn_probes_info *ret);

/* Bytes that the kernel takes for all maps now; some grow as they fill. A few dozen small reads. */
uint64_t ltn_probes_map_bytes(const struct ltn_probes *p);

/* Attached functions one by one: start with *pos = 0; NULL at the end. Owned by p, valid until the
 * next attach or detach. */
struct ltn_probe_site {
    uint32_t lib_id;
    uint16_t op;
    const char *symbol; /* static storage */
    struct ltn_site site;
};
const struct ltn_probe_site *ltn_probes_next(const struct ltn_probes *p, size_t *pos);

/* Optional programs that did not attach: "sched_switch: ...". "" when all did. Owned by p. */
const char *ltn_probes_note(const struct ltn_probes *p);

/* Host families that were wanted and do not run, with the reason: "sockets: ...". "" when all do.
 * Owned by p. */
const char *ltn_probes_host_note(const struct ltn_probes *p);

/* "disks", "TCP", "sockets", "files", "memory" for LTN_HOST_*. Static storage. */
const char *ltn_probes_family_name(uint32_t family);

#endif /* LTN_PROBE_PROBES_H */
