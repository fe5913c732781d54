/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several records as one: every row of the inputs under new ids, names of nodes, operations,
 * processes and texts shared. The inputs are only read. One thread at a time.
 */
#ifndef LTN_CLI_MERGE_H
#define LTN_CLI_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct ltn_merge_opts {
    const char *const *inputs;
    size_t input_count;
    const char *output;     /* must not exist */
    const char *force_node; /* every row becomes this node's; NULL: nodes keep their names */
};

struct ltn_merge_result {
    uint64_t calls;
    uint64_t windows;
    uint64_t incident_changes;
    uint64_t duplicates; /* rows that an input before had already */
    /* Largest difference of the clocks of two nodes, by collectives that both entered. */
    uint64_t skew_pairs; /* pairs of nodes that could be compared */
    uint64_t unmeasured; /* pairs that could not */
    double skew_ns;      /* the largest, 0 when none was measured */
    char skew_a[128], skew_b[128];
};

/* 0 or a negative code with a message; then there is no output. */
int ltn_merge(const struct ltn_merge_opts *o, struct ltn_merge_result *ret,
              struct ltn_errinfo *info) ltn_must_check;

/* Tables that merging copies or rebuilds, and those it leaves out on purpose; for the test that
 * holds them against the schema. Static storage. */
const char *ltn_merge_table(size_t i, const char **ret_columns);

#endif /* LTN_CLI_MERGE_H */
