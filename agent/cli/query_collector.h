/* SPDX-License-Identifier: Apache-2.0 */
/* One statement to all nodes by way of the collector: POST /api/v1/query, docs/fan-out.md. */
#ifndef LTN_CLI_QUERY_COLLECTOR_H
#define LTN_CLI_QUERY_COLLECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum ltn_query_format { LTN_QUERY_TABLE, LTN_QUERY_JSON, LTN_QUERY_CSV };

struct ltn_query_collector {
    const char *url;          /* of the collector's API, "http://host:8420"; "http://" may lack */
    const char *token;        /* NULL or "": none */
    const char *ca_file;      /* for https://; NULL: the system's */
    const char *cert_file;    /* shown to the collector; NULL: none */
    const char *key_file;     /* NULL: in cert_file */
    const char *sql;          /* one statement */
    const char *reduce;       /* second statement over the table fleet; NULL: none */
    const char *const *nodes; /* NULL: all */
    size_t node_count;
    uint64_t limit;      /* 0: the collector's default */
    uint64_t timeout_ns; /* for the nodes; 0: 10 s */
    enum ltn_query_format format;
};

/* Asks, and writes the rows to out and warnings to err (with JSON they are part of it). The exit
 * code of the program: 0 all nodes answered, 1 some did not, 2 wrong statement, 3 no answer. */
int ltn_query_collector(const struct ltn_query_collector *q, FILE *out, FILE *err);

#endif /* LTN_CLI_QUERY_COLLECTOR_H */
