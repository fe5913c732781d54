/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One statement on many nodes through their local APIs, the rows joined under a column "node". At
 * most 16 nodes are asked at a time, each with a deadline. Thread-safe.
 */
#ifndef LTN_CLI_FANOUT_H
#define LTN_CLI_FANOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "serve/rows.h"

#define LTN_FANOUT_NODES 256

struct ltn_fanout_opts {
    const char *const *nodes; /* "host:port" or a URL */
    size_t node_count;
    const char *sql;
    const char *token;                          /* "" or NULL: none */
    const char *ca_file, *cert_file, *key_file; /* as of struct ltn_http_call */
    uint64_t limit;                             /* rows of each node */
    uint64_t timeout_ns;
};

struct ltn_fanout_node {
    const char *address; /* borrowed */
    char node[256];      /* the name it gave itself */
    bool answered;
    bool truncated;
    size_t row_count;
    char error[256]; /* why it did not answer */
    bool clock_known;
    double skew_ns;        /* its clock minus ours */
    double uncertainty_ns; /* half of the shortest round trip */
    struct ltn_rows rows;
};

/* Asks every node. *ret_nodes gets node_count entries, freed by ltn_fanout_free. 0 also when none
 * answered; negative when nothing could be asked. */
int ltn_fanout_run(const struct ltn_fanout_opts *o, struct ltn_fanout_node **ret_nodes,
                   struct ltn_errinfo *info) ltn_must_check;
void ltn_fanout_free(struct ltn_fanout_node *nodes, size_t n);

/* Puts the rows of the nodes that answered into out, with a column "node" first unless the
 * statement gives one. A node whose columns differ from those of the first is marked unanswered
 * with the reason. */
int ltn_fanout_join(struct ltn_fanout_node *nodes, size_t n, struct ltn_rows *out) ltn_must_check;

/* Runs a statement over rows, which stand in the table "fleet" of a database in memory. Only reads;
 * errors of ltn_db_query. */
int ltn_fanout_reduce(const struct ltn_rows *rows, const char *sql,
                      const struct ltn_db_limits *limits, struct ltn_rows *out,
                      struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_CLI_FANOUT_H */
