/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of collector/store share. */
#ifndef LTN_STORE_INTERNAL_H
#define LTN_STORE_INTERNAL_H

#include "base/map.h"
#include "sql/db.h"
#include "store/store.h"

/* Row ids of nodes, processes and ops that were seen, so that most writes need no look-up. Cleared
 * when full and after a rollback. */
struct ltn_ids {
    struct ltn_map map; /* text -> id as pointer-sized number */
};
#define LTN_IDS_MAX 400000

/* Counters of log records; bytes is what is kept, as the file says it. */
struct ltn_log_counts {
    uint64_t bytes, stored, repeated, pruned_age, pruned_bytes;
};

/* What is known of the log of series; a failed commit puts it back. */
struct ltn_series_log {
    uint64_t round;       /* of the walk over what did not change; 0: none began */
    int64_t round_seq;    /* first row of the round */
    int64_t delete_below; /* rows before are superfluous; 0: none is */
    uint64_t bytes;       /* in rows since the beginning of the round before, about */
    uint64_t round_bytes; /* since the beginning of the round */
};

struct ltn_writer {
    struct ltn_db *db;
    struct ltn_ids ids;
    uint64_t rows;
    struct ltn_log_counts logs;
    struct ltn_series *series; /* NULL: none are kept */
    struct ltn_series_log log, log_before;
    bool series_anew; /* the file has none of them */
    bool series_open; /* between write and written */
};

extern const char *const ltn_store_migrations[];
extern const size_t ltn_store_migration_count;
/* What every file has had from the first version on, before there was an application id. */
extern const char *const ltn_store_tables[];

/* rows.c: rows of one update; inside a transaction. 0 or the engine's error. */
int ltn_write_update(struct ltn_writer *w, const struct ltn_update *u) ltn_must_check;
/* logs.c: records of one update, and the two bounds on what is kept (max_bytes 0: none); inside a
 * transaction. 0 or the engine's error. After a rollback the counts are to be put back. */
int ltn_write_logs(struct ltn_writer *w, const struct ltn_update *u) ltn_must_check;
int ltn_logs_bound(struct ltn_writer *w, uint64_t max_bytes) ltn_must_check;
int ltn_logs_expire(struct ltn_writer *w, uint64_t before_ns) ltn_must_check;
/* Reads the sum of bytes of a file just opened. */
int ltn_logs_open(struct ltn_writer *w) ltn_must_check;
/* verdicts.c */
int ltn_write_verdict(struct ltn_writer *w, enum ltn_straggler_change change,
                      const struct ltn_straggler_verdict *v) ltn_must_check;
int ltn_load_verdicts(struct ltn_db *db, size_t max,
                      const struct ltn_store_sink *sink) ltn_must_check;
int ltn_load_incidents(struct ltn_db *db, size_t max,
                       const struct ltn_store_sink *sink) ltn_must_check;
/* series.c: what changed of the series; inside a transaction. What came of it must be told. */
int ltn_write_series(struct ltn_writer *w) ltn_must_check;
void ltn_series_written(struct ltn_writer *w, bool ok);
/* Into an empty table. */
int ltn_load_series(struct ltn_writer *w, uint64_t now_ns) ltn_must_check;
void ltn_writer_forget(struct ltn_writer *w);

#endif /* LTN_STORE_INTERNAL_H */
