/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns windows, calls and incident changes into rows. Called inside a transaction of the caller;
 * what it remembers of ids is dropped with ltn_writer_forget after a rollback. One thread at a
 * time.
 */
#ifndef LTN_RECORD_WRITER_H
#define LTN_RECORD_WRITER_H

#include "base/buf.h"
#include "base/map.h"
#include "probe/ops.h"
#include "record/record.h"
#include "sql/db.h"
#include "symbol/stack.h"

struct ltn_writer {
    struct ltn_db *db;
    int64_t node_id;
    int64_t ops[LTN_OP_COUNT]; /* id here -> id in the database, which outlives versions */
    struct ltn_map strings;    /* text -> id */
    struct ltn_map procs;      /* {pid, start} -> struct of the writer */
    struct ltn_map gpus;       /* uuid -> id */
    int64_t next_call_id;
    uint64_t calls_lost; /* records of calls that never reached the database; kept by its owner */
    struct ltn_buf blob;
};

/* Prepares a writer on a migrated database: node, ops, counters. Must run outside a transaction. */
int ltn_writer_init(struct ltn_writer *w, struct ltn_db *db, const char *node) ltn_must_check;
void ltn_writer_done(struct ltn_writer *w);

/* Forgets every remembered id. */
void ltn_writer_forget(struct ltn_writer *w);

/* Store one thing. Errors of common/sql/db.h. */
int ltn_writer_window(struct ltn_writer *w, const struct ltn_window *window,
                      uint64_t sequence) ltn_must_check;
int ltn_writer_calls(struct ltn_writer *w, const struct ltn_call_batch *batch) ltn_must_check;
int ltn_writer_stack(struct ltn_writer *w, const struct ltn_stack *s) ltn_must_check;
int ltn_writer_incident(struct ltn_writer *w, const struct ltn_record_incident *i) ltn_must_check;

/* First column of a statement's first row; the statement is then free again. */
int ltn_writer_take_id(struct ltn_stmt *s, int64_t *ret) ltn_must_check;

/* Makes the id of the next call survive the deletion of every call. Once per transaction. */
int ltn_writer_save_counters(struct ltn_writer *w) ltn_must_check;

#endif /* LTN_RECORD_WRITER_H */
