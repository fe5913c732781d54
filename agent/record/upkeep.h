/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps the file in bounds: oldest-first pruning by class, bounds of the outbox. The caller
 * holds the connection; functions that say so run their own transactions.
 */
#ifndef LTN_RECORD_UPKEEP_H
#define LTN_RECORD_UPKEEP_H

#include "sql/db.h"

struct ltn_pruned {
    uint64_t calls;
    uint64_t windows;
    uint64_t incidents;
    bool more; /* the file is still above its cap: call again soon */
};

/* Deletes oldest rows until the space in use is below nine tenths of max_bytes, for a bounded time;
 * own transactions. Adds to *p. */
int ltn_prune(struct ltn_db *db, uint64_t max_bytes, struct ltn_pruned *p) ltn_must_check;

struct ltn_outbox_size {
    uint64_t rows;
    uint64_t bytes;
};

/* Counts the outbox. */
int ltn_outbox_measure(struct ltn_db *db, struct ltn_outbox_size *ret) ltn_must_check;

/* In the caller's transaction: appends, removes, notes a failed attempt. *size follows. */
struct ltn_outbox_row {
    int signal;
    uint64_t created_ns;
    uint64_t sequence;
    const void *bytes;
    size_t n;
};
int ltn_outbox_append(struct ltn_db *db, const struct ltn_outbox_row *row,
                      struct ltn_outbox_size *size) ltn_must_check;
int ltn_outbox_remove(struct ltn_db *db, int64_t id, struct ltn_outbox_size *size) ltn_must_check;
int ltn_outbox_tried(struct ltn_db *db, int64_t id) ltn_must_check;

/* In the caller's transaction: drops rows from before oldest_ns and then the oldest ones until at
 * most max_bytes are left. */
struct ltn_outbox_dropped {
    uint64_t for_age;
    uint64_t for_bytes;
};
int ltn_outbox_bound(struct ltn_db *db, uint64_t oldest_ns, uint64_t max_bytes,
                     struct ltn_outbox_size *size, struct ltn_outbox_dropped *ret) ltn_must_check;

#endif /* LTN_RECORD_UPKEEP_H */
