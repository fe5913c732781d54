/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's database and its only writer, the thread "record". Windows, call batches and incident
 * changes come through bounded channels; what cannot be kept is counted:
 * received = stored + dropped (+ what still waits). Writing happens in groups, one transaction
 * each. When the disk is full or the file cannot be written the newest windows wait in memory, the
 * rest is counted, and writing goes on by itself once it works again.
 *
 * When an encoder is given, the requests it makes of a window stand in the table outbox after the
 * same transaction; agent/push sends and acknowledges them.
 */
#ifndef LTN_RECORD_RECORD_H
#define LTN_RECORD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "capture/window.h"
#include "symbol/stack.h"

struct ltn_record;

/* Signal of an outbox row. */
enum ltn_record_signal { LTN_RECORD_METRICS = 1, LTN_RECORD_LOGS = 2 };

/* A change of an incident. Texts are borrowed until the send returns. */
struct ltn_record_incident {
    const char *id; /* the same for every change of one incident */
    uint64_t time_ns;
    uint64_t opened_ns;
    const char *state; /* "open", "update", "closed" */
    const char *kind;
    const char *severity; /* "LOW", "MEDIUM", "HIGH", "CRITICAL" */
    const char *title;
    const char *cause;      /* "" when unexplained */
    double explained_share; /* 0..1, negative when unknown */
    uint64_t count;
    uint32_t pid; /* 0: the node */
    uint64_t proc_start_ns;
    const char *evidence; /* JSON */
};

/* Where an encoder hands over its requests. Returns 0 or a negative code that the encoder returns.
 */
typedef int (*ltn_record_emit_fn)(void *emit_ctx, enum ltn_record_signal signal, const void *bytes,
                                  size_t n);

/* Makes OTLP requests of what is stored. Called on the record thread, more than once for the same
 * thing when storing failed. */
struct ltn_record_encoder {
    void *ctx;
    int (*window)(void *ctx, const struct ltn_window *w, uint64_t sequence, ltn_record_emit_fn emit,
                  void *emit_ctx);
    int (*incident)(void *ctx, const struct ltn_record_incident *i, ltn_record_emit_fn emit,
                    void *emit_ctx);
};

struct ltn_record_opts {
    const char *path;
    const char *node;
    uint64_t max_bytes; /* oldest rows go beyond this, raw calls first, incidents last; 0: no cap */
    bool own;           /* give the file to uid and gid (sudo) */
    unsigned uid, gid;
    bool record_calls;     /* false: call batches are taken and counted as disabled */
    bool sync_full;        /* survive power loss, not only a crash */
    unsigned commit_ms;    /* longest wait of a row for its commit; 0: 250 */
    unsigned lock_wait_ms; /* for another writer to go, at open; 0: 15000 */
    void (*waits)(void *ctx, const char *text); /* told when that takes a second; may be NULL */
    unsigned retry_ms;                          /* pause after a failed write; 0: 5000 */
    size_t max_queued_windows;                  /* 0: 64 */
    size_t max_queued_batches;                  /* and stacks; 0: 4096 */
    uint64_t max_queued_bytes;                  /* per channel; 0: 64 MiB */
    const struct ltn_record_encoder *encoder;   /* NULL: nothing is pushed; copied */
    uint64_t outbox_max_bytes;                  /* 0: 256 MiB */
    uint64_t outbox_max_age_ns;                 /* 0: 24 h */
};

/* Opens (or makes, or replaces when damaged) the database and brings its schema up to date. A file
 * that is not a record of ours is refused (LTN_ERR_UNSUPPORTED) and not touched, a second writer
 * too (LTN_ERR_BUSY); other errors of common/sql/db.h; info says what to do. Free with
 * ltn_record_close. */
int ltn_record_open(const struct ltn_record_opts *opts, struct ltn_record **ret_record,
                    struct ltn_errinfo *info) ltn_must_check;

/* Starts the thread. 0 or -errno. */
int ltn_record_start(struct ltn_record *r) ltn_must_check;

/* Refuses further input, writes what waits, ends the thread. What cannot be written is counted. */
void ltn_record_stop(struct ltn_record *r);

/* Stops and frees. NULL is ignored. */
void ltn_record_close(struct ltn_record *r);

/* Where a damaged database was moved by open, "" when it was not. */
const char *ltn_record_moved(const struct ltn_record *r);

/* Hands over a window or a batch. 0: taken, the recorder frees it. LTN_ERR_BUSY (queue full,
 * counted here) or LTN_ERR_CLOSED: it stays the caller's, who frees it. Never blocks. Any thread.
 */
int ltn_record_send_window(struct ltn_record *r, struct ltn_window *w) ltn_must_check;
int ltn_record_send_calls(struct ltn_record *r, struct ltn_call_batch *batch) ltn_must_check;

/* Copies and queues an incident change; errors as above, -ENOMEM. Any thread. */
int ltn_record_send_incident(struct ltn_record *r,
                             const struct ltn_record_incident *i) ltn_must_check;

/* Hands over a stack by taking a reference; errors as above. Any thread. */
int ltn_record_send_stack(struct ltn_record *r, const struct ltn_stack *s) ltn_must_check;

enum ltn_record_drop {
    LTN_RECORD_DROP_QUEUE,    /* channel full */
    LTN_RECORD_DROP_DISK,     /* could not be written, and newer ones needed the room */
    LTN_RECORD_DROP_CLOSED,   /* sent after stop */
    LTN_RECORD_DROP_INVALID,  /* refused by the schema */
    LTN_RECORD_DROP_DISABLED, /* calls with record_calls off */
    LTN_RECORD_DROPS,
};

/* "queue", "disk", … Static storage. */
const char *ltn_record_drop_name(enum ltn_record_drop reason);

/* Name of a kernel-side drop counter for people and attributes: "ring_calls", … Static storage. */
const char *ltn_record_kernel_drop_name(enum ltn_drop drop);

struct ltn_record_flow {
    uint64_t received; /* windows, calls, incident changes */
    uint64_t stored;   /* committed */
    uint64_t dropped[LTN_RECORD_DROPS];
    uint64_t waiting; /* in a queue now; 0 after stop */
};

struct ltn_record_stats {
    struct ltn_record_flow windows;
    struct ltn_record_flow calls;
    struct ltn_record_flow incidents;
    struct ltn_record_flow stacks;
    uint64_t db_bytes;   /* file and log on disk */
    uint64_t used_bytes; /* of it not free for reuse */
    uint64_t pruned_calls;
    uint64_t pruned_windows;
    uint64_t pruned_incidents;
    uint64_t commits;
    uint64_t failed_commits;
    uint64_t
        replaced_files; /* databases begun anew: damaged and moved aside, or deleted under us */
    bool degraded;      /* writing fails at present */
    int failed_rc;      /* why it failed last; 0: never */
    uint64_t outbox_rows;
    uint64_t outbox_bytes;
    uint64_t outbox_dropped_bytes_limit; /* rows that left unsent */
    uint64_t outbox_dropped_age;
    uint64_t outbox_dropped_unencodable;
};

/* Any thread. */
void ltn_record_stats(struct ltn_record *r, struct ltn_record_stats *ret);

/* ---- for agent/push ---- */

enum ltn_record_ack {
    LTN_RECORD_SENT,  /* delivered, or refused for good: the row goes */
    LTN_RECORD_TRIED, /* failed once more: attempts grows by one */
};

/* Tells the outcome for an outbox row; done with the next group. LTN_ERR_BUSY when too many wait,
 * LTN_ERR_CLOSED. Any thread. */
int ltn_record_ack(struct ltn_record *r, int64_t outbox_id,
                   enum ltn_record_ack outcome) ltn_must_check;

/* Readable (poll) after windows were stored; the receiver reads the eventfd. */
int ltn_record_outbox_fd(const struct ltn_record *r);

/* Path of the database, owned by r. */
const char *ltn_record_path(const struct ltn_record *r);

#endif /* LTN_RECORD_RECORD_H */
