/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/merge_skew.h"

#include <math.h>
#include <stdio.h>

#include "stats/robust.h"

#define NODES_MAX   32
#define SAMPLES_MAX 1001
#define SAMPLES_MIN 8

struct node {
    int64_t id;
    char name[128];
};

/* The first entry of each node into each collective, in a table that finds it again. */
static int prepare_entries(struct ltn_db *db)
{
    return ltn_db_exec(
        db, "CREATE TEMP TABLE entries (node_id INTEGER, comm_id INTEGER, op_id INTEGER, "
            "sequence INTEGER, time_ns INTEGER, PRIMARY KEY (node_id, comm_id, op_id, "
            "sequence)) WITHOUT ROWID;"
            "INSERT OR IGNORE INTO entries SELECT p.node_id, c.comm_id, c.op_id, "
            "c.sequence, min(c.time_ns) FROM calls c JOIN procs p ON p.id = c.proc_id "
            "WHERE c.comm_id IS NOT NULL AND c.comm_id <> 0 AND c.sequence IS NOT NULL "
            "GROUP BY 1, 2, 3, 4");
}

static int list_nodes(struct ltn_db *db, struct node nodes[NODES_MAX], size_t *ret_n)
{
    struct ltn_stmt *s;
    size_t n = 0;
    int rc = ltn_db_prepare(db, "SELECT id, name FROM nodes ORDER BY id LIMIT 32", &s);
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        nodes[n].id = ltn_stmt_col_i64(s, 0);
        (void)snprintf(nodes[n].name, sizeof(nodes[n].name), "%s", ltn_stmt_col_text(s, 1));
        n++;
        rc = 0;
        if (n == NODES_MAX) {
            ltn_stmt_reset(s);
            break;
        }
    }
    *ret_n = n;
    return rc;
}

static int differences(struct ltn_db *db, int64_t a, int64_t b, double *samples, size_t *ret_n)
{
    struct ltn_stmt *s;
    size_t n = 0;
    int rc = ltn_db_prepare(db,
                            "SELECT x.time_ns - y.time_ns FROM entries x JOIN entries y ON "
                            "y.node_id = ?2 AND y.comm_id = x.comm_id AND y.op_id = x.op_id AND "
                            "y.sequence = x.sequence WHERE x.node_id = ?1 LIMIT ?3",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, a);
    ltn_stmt_i64(s, 2, b);
    ltn_stmt_i64(s, 3, SAMPLES_MAX);
    while ((rc = ltn_stmt_step(s)) == 1) {
        samples[n++] = (double)ltn_stmt_col_i64(s, 0);
    }
    *ret_n = n;
    return rc;
}

static int compare(struct ltn_db *db, const struct node *a, const struct node *b,
                   struct ltn_merge_result *ret)
{
    double samples[SAMPLES_MAX];
    size_t n = 0;
    int rc = differences(db, a->id, b->id, samples, &n);
    if (rc < 0) {
        return rc;
    }
    if (n < SAMPLES_MIN) {
        ret->unmeasured++;
        return 0;
    }
    ret->skew_pairs++;
    double skew = ltn_median(samples, n);
    if (fabs(skew) >= fabs(ret->skew_ns)) {
        ret->skew_ns = skew;
        (void)snprintf(ret->skew_a, sizeof(ret->skew_a), "%s", a->name);
        (void)snprintf(ret->skew_b, sizeof(ret->skew_b), "%s", b->name);
    }
    return 0;
}

int ltn_merge_skew(struct ltn_db *db, struct ltn_merge_result *ret)
{
    struct node nodes[NODES_MAX];
    size_t n = 0;
    int rc = prepare_entries(db);
    if (rc == 0) {
        rc = list_nodes(db, nodes, &n);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        for (size_t k = i + 1; k < n && rc == 0; k++) {
            rc = compare(db, &nodes[i], &nodes[k], ret);
        }
    }
    return rc;
}
