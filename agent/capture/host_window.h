/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host did in a window: to the traced processes and their descendants (memory, files,
 * sockets, disks, CPU limits), and as a whole (disks, segments sent again, load, pressure). Plain
 * data; part of struct ltn_window and as immutable. In each row `now` are sums since the agent
 * looks, `delta` what this window added.
 */
#ifndef LTN_CAPTURE_HOST_WINDOW_H
#define LTN_CAPTURE_HOST_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

/* Whose a row is. pid 0: of nobody traced. */
struct ltn_host_owner {
    uint32_t pid;
    uint64_t start_ns;             /* Unix time: pid and start together name an incarnation */
    char comm[LTN_COMM_BYTES + 1]; /* cleaned */
};

struct ltn_host_proc_row {
    struct ltn_host_owner who;
    uint32_t parent_pid;
    bool ended;
    struct ltn_host_process now;
    struct ltn_host_process delta; /* sums only */
};

struct ltn_host_block_row {
    struct ltn_host_owner who;
    struct ltn_block_key key;
    char disk[LTN_DISK_NAME_BYTES]; /* cleaned */
    struct ltn_block_stats now;
    struct ltn_block_stats delta; /* max_ns and depth_max: since the agent looks */
};

struct ltn_host_net_row {
    struct ltn_host_owner who;
    struct ltn_net_key key;
    struct ltn_net_stats delta;
};

struct ltn_host_retransmit_row {
    struct ltn_host_owner who;
    struct ltn_retransmit_key key;
    uint64_t segments; /* in this window */
    uint64_t handshake;
};

struct ltn_host_file_row {
    struct ltn_host_owner who;
    struct ltn_file_stats delta; /* max_ns: since the path was first told; path as the kernel gave
                                    it: not cleaned, always ended by a zero */
};

/* CPU limit of the cgroup a traced process lives in, or of the one above it that held it longest.
 */
struct ltn_host_throttle_row {
    struct ltn_host_owner who;
    const char *path;
    uint64_t periods; /* in this window */
    uint64_t throttled;
    uint64_t throttled_ns;
    uint64_t throttled_total_ns; /* since the cgroup exists */
};

/* Life of a traced process or of a descendant of one. */
struct ltn_host_event_row {
    struct ltn_host_owner who;
    uint64_t time_ns; /* Unix time */
    uint32_t parent_pid;
    int32_t exit_code; /* as wait() gives it */
    uint16_t type;     /* LTN_EVENT_EXEC, EXIT, FORK, OOM or SEEN */
};

/* The node from /proc. Shares are 0..1; what the kernel does not say is negative. */
struct ltn_host {
    unsigned cpus;
    double cpu_busy; /* of all CPUs, since the sample before; negative in the first */
    double load1;
    uint64_t memory_total_bytes; /* 0: unknown */
    uint64_t memory_available_bytes;
    uint64_t swap_total_bytes;
    uint64_t swap_used_bytes;
    double pressure_cpu; /* some task waited, mean of 10 s (PSI) */
    double pressure_memory;
    double pressure_io;
};

/* Requests of one kind to one disk, whoever issued them; since the agent looks. */
struct ltn_host_disk_row {
    uint32_t major;
    uint32_t minor;
    uint32_t op; /* enum ltn_block_op */
    char disk[LTN_DISK_NAME_BYTES];
    uint64_t requests;
    uint64_t bytes;
    uint64_t spent_ns; /* queued and with the driver */
};

/* Sums over all traced processes and their descendants, those that ended among them; since the
 * agent looks. */
struct ltn_host_totals {
    uint64_t page_bytes;
    uint64_t reclaim_ns;
    uint64_t opens;
    uint64_t opens_failed; /* opens_missing among them */
    uint64_t opens_missing;
    uint64_t open_ns;
    uint64_t socket_sent_bytes;
    uint64_t socket_received_bytes;
    uint64_t block_read_bytes;
    uint64_t block_written_bytes;
    uint64_t throttled_ns;
    uint64_t retransmits;                /* of the whole node */
    uint64_t events[LTN_EVENT_SEEN + 1]; /* by enum ltn_event_type */
};

struct ltn_host_window {
    const struct ltn_host_proc_row *procs;
    size_t proc_count;
    const struct ltn_host_block_row *blocks;
    size_t block_count;
    const struct ltn_host_net_row *nets;
    size_t net_count;
    const struct ltn_host_retransmit_row *retransmits;
    size_t retransmit_count;
    const struct ltn_host_file_row *files;
    size_t file_count;
    const struct ltn_host_throttle_row *throttles;
    size_t throttle_count;
    const struct ltn_host_event_row *events;
    size_t event_count;
    uint64_t events_lost; /* over the ceiling of a window; since the agent looks */
    const struct ltn_host_disk_row *disks;
    size_t disk_count;
    struct ltn_host_totals totals;
    bool has_state; /* state was read */
    bool state_due; /* it moved by more than the deadband, or the heartbeat is due */
    struct ltn_host state;
};

#endif /* LTN_CAPTURE_HOST_WINDOW_H */
