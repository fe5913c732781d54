/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of `lanterne explain`: incidents of the record with their evidence, and what the
 * windows say beside them. One thread at a time.
 */
#ifndef LTN_CLI_EXPLAIN_H
#define LTN_CLI_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "record/reader.h"
#include "serve/rows.h"

struct ltn_explain_opts {
    uint64_t from_ns; /* Unix time */
    uint64_t to_ns;
    uint64_t last;    /* newest incidents to tell */
    uint32_t pid;     /* 0: every process */
    bool chains;      /* only what was recorded as incidents */
    bool per_process; /* a table of processes */
    bool colour;
};

/* What the report is made of. */
struct ltn_explain {
    struct ltn_explain_opts o;
    struct ltn_rows span;       /* one row: first_ns, last_ns, windows, processes, node */
    struct ltn_rows incidents;  /* the view incidents, newest first */
    struct ltn_rows stacks;     /* where an incident's calls were made from, longest first */
    struct ltn_rows ops;        /* usual and recent durations, worst first */
    struct ltn_rows ranks;      /* earlier and later step and self time */
    struct ltn_rows preemptors; /* who held the CPU */
    struct ltn_rows sharing;    /* GPUs that more than one process used at a time */
    struct ltn_rows processes;  /* with per_process */
};

/* Asks the record. 0 or an error of ltn_record_query; free with ltn_explain_done in either case. */
int ltn_explain_load(struct ltn_explain *e, struct ltn_record_reader *r,
                     const struct ltn_explain_opts *o, struct ltn_errinfo *info) ltn_must_check;
void ltn_explain_done(struct ltn_explain *e);

/* Appends the report for people, at most 80 columns wide where names allow, or one JSON object.
 * Failures stick in out. */
void ltn_explain_text(const struct ltn_explain *e, struct ltn_buf *out);
void ltn_explain_json(const struct ltn_explain *e, struct ltn_buf *out);

/* Appends where the calls of an incident were made from; nothing when that is not known. */
void ltn_explain_stacks_text(const struct ltn_explain *e, const char *incident,
                             struct ltn_buf *out);

/* Asks for the stacks of the incidents that were loaded; errors as ltn_explain_load. */
int ltn_explain_stacks_load(struct ltn_explain *e, struct ltn_record_reader *r,
                            struct ltn_errinfo *info) ltn_must_check;

/* What to do about a kind of incident; static storage. */
const char *ltn_explain_advice(const char *kind);

#endif /* LTN_CLI_EXPLAIN_H */
