/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Database of the collector. One writer thread takes items from a bounded queue and commits them in
 * groups: everything that waits goes into one transaction. Done calls come after the commit, on the
 * writer thread.
 */
#ifndef LTN_STORE_STORE_H
#define LTN_STORE_STORE_H

#include <stdbool.h>

#include "base/attr.h"
#include "base/err.h"
#include "fleet/update.h"
#include "prom/series.h"
#include "straggler/straggler.h"

struct ltn_store;

struct ltn_store_opts {
    const char *path;
    /* Series whose changes go into every commit; may be NULL. Borrowed; must outlive the store. */
    struct ltn_series *series;
    bool sync_full;           /* survive power loss, not only the end of the process */
    uint64_t window_keep_ns;  /* rank windows older than that are deleted */
    uint64_t history_keep_ns; /* verdicts, incidents, processes likewise */
    uint64_t log_keep_ns;     /* log records, from their arrival on */
    uint64_t log_bytes;       /* log records together; the oldest go first. 0: any number */
    size_t queue_items;
    size_t queue_bytes;
    unsigned lock_wait_ms; /* for another writer to go, at open; 0: 15000 */
    /* Says for the log that another writer is waited for, at open, and what happened to the file
     * while running (deleted, damaged, cannot be begun anew). Then on the writer thread; may be
     * NULL. */
    void (*notice)(void *ctx, const char *text);
    void *notice_ctx;
};

/* Opens (a damaged file is moved aside and said in *info with code 0), and migrates. A file that is
 * not a collector's is refused (LTN_ERR_UNSUPPORTED) and not touched, a second writer too
 * (LTN_ERR_BUSY).
 * 0 or an error with its reason. Free with ltn_store_free. */
int ltn_store_open(const struct ltn_store_opts *opts, struct ltn_store **ret,
                   struct ltn_errinfo *info) ltn_must_check;

/* Starts the writer thread; what may be read (ltn_store_load) is read before. 0 or -errno. */
int ltn_store_start(struct ltn_store *s) ltn_must_check;

/* Commits what waits, stops the writer, closes. NULL is ignored. */
void ltn_store_free(struct ltn_store *s);

/* Reads the series back into their table, which is empty. Before ltn_store_start. */
int ltn_store_load_series(struct ltn_store *s) ltn_must_check;

/* Something to be committed: an update, or NULL for only what changed of the series until now. The
 * memory is the caller's until done is called with 0 or a retryable error; done may free it. */
struct ltn_store_item {
    const struct ltn_update *update;
    void (*done)(struct ltn_store_item *item, int rc);
};

/* Queues an item. LTN_ERR_BUSY (full), LTN_ERR_DISK (the last write failed a moment ago),
 * LTN_ERR_CLOSED: done is not called. Any thread. */
int ltn_store_put(struct ltn_store *s, struct ltn_store_item *item,
                  size_t weight_bytes) ltn_must_check;

/* 0 when a put would find the database writable, else LTN_ERR_DISK. Any thread. */
int ltn_store_check(struct ltn_store *s) ltn_must_check;

/* Queues a change of a verdict (copied). It is kept in memory and tried again while the disk cannot
 * be written. LTN_ERR_BUSY when too many wait, -ENOMEM. Any thread. */
int ltn_store_verdict(struct ltn_store *s, enum ltn_straggler_change change,
                      const struct ltn_straggler_verdict *v) ltn_must_check;

/* What was kept: the last state of each verdict, the last change of each incident, oldest first, at
 * most max of each. Before ltn_store_start. Callbacks borrow. */
struct ltn_store_sink {
    void *ctx;
    void (*on_verdict)(void *ctx, const struct ltn_straggler_verdict *v);
    void (*on_incident)(void *ctx, const struct ltn_update_incident *i);
};
int ltn_store_load(struct ltn_store *s, size_t max,
                   const struct ltn_store_sink *sink) ltn_must_check;

struct ltn_store_stats {
    uint64_t commits, items, rows;
    uint64_t failed_commits, refused_busy, refused_disk;
    uint64_t replaced_files; /* begun anew while running: deleted, or damaged and moved aside */
    uint64_t verdicts_waiting, verdicts_lost;
    uint64_t logs_stored, logs_repeated, logs_pruned_age, logs_pruned_bytes, log_bytes;
    uint64_t file_bytes;
    size_t queue_items, queue_bytes;
    double commit_seconds;
    bool writable;
    char error[160]; /* of the last failed write; "" when writable */
};

/* Any thread. */
void ltn_store_stats(struct ltn_store *s, struct ltn_store_stats *ret);

#endif /* LTN_STORE_STORE_H */
