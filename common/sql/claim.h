/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose file a database is, and who may write it. A writer opens with ltn_db_open_or_recover, which
 * looks at a file before the engine does and refuses what is not this program's without touching
 * it, and which holds FILE.lock so that there is one writer at a time. Readers are not affected.
 */
#ifndef LTN_SQL_CLAIM_H
#define LTN_SQL_CLAIM_H

#include "sql/db.h"

/* PRAGMA application_id of our files: "LTNR", "LTNC". */
#define LTN_DB_NODE      0x4c544e52u
#define LTN_DB_COLLECTOR 0x4c544e43u

/* What a writer holds for its life. Embedded by the caller, used by one thread at a time. */
struct ltn_db_claim {
    uint32_t application_id; /* LTN_DB_...; new files get it, others are refused */
    const char *writer;      /* "agent", "collector": for the message to a second one */
    /* Files from before the id stood in the header are ours when they have all of these tables;
     * ends with NULL. Static storage. */
    const char *const *tables;
    unsigned lock_wait_ms; /* how long another writer may take to go; init: 15000 */
    /* Told once when that takes a second; NULL: not told. */
    void (*waits)(void *ctx, const char *text);
    void *waits_ctx;
    int lock_fd;       /* -1: not held */
    bool known;        /* dev and ino are of a file that is ours whatever its content */
    uint64_t dev, ino; /* valid for the next open only */
};

void ltn_db_claim_init(struct ltn_db_claim *c, uint32_t application_id, const char *writer,
                       const char *const *tables);

/* Gives the lock up. The lock file stays. */
void ltn_db_claim_done(struct ltn_db_claim *c);

/* Before closing a connection to open again: remembers its file as ours, for the next open, even
 * if its header is damaged by now. Does nothing when another file stands under the name. */
void ltn_db_claim_file(struct ltn_db_claim *c, struct ltn_db *db);

/* ltn_db_open with a claim and a quick look for damage. No file or an empty one begins a database;
 * a file of ours is opened, and when damaged moved aside (with its side files) as
 * PATH.corrupt-<Unix seconds> and a new one begun. Anything else, also what is no regular file, is
 * refused with LTN_ERR_UNSUPPORTED and stays as it is; so does a file with another writer
 * (LTN_ERR_BUSY). ret_moved (LTN_DB_PATH_BYTES, may be NULL) gets the new name of the damaged file,
 * "" when all was well. The claim is kept on success, and may be held on failure. */
int ltn_db_open_or_recover(const struct ltn_db_opts *opts, struct ltn_db_claim *claim,
                           struct ltn_db **ret_db, char *ret_moved,
                           struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_SQL_CLAIM_H */
