/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread "control": keeps one stream (lanterne.v1.Control/Attach) to the collector open, over
 * which it measures the clocks, answers read-only queries from the node's record and takes the
 * verdicts of this node. Queries run in a thread of their own, "query", never in one that captures
 * or records. A collector without the service, or none at all, costs a connection attempt now and
 * then.
 */
#ifndef LTN_PUSH_CONTROL_H
#define LTN_PUSH_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "push/push.h"

struct ltn_agent_control_conf {
    const char *node, *cluster;  /* copied; cluster may be NULL */
    const char *instance;        /* service.instance.id; copied */
    const char *db_path;         /* the record that queries read; copied */
    uint64_t first_backoff_ns;   /* 0: 1 s; doubled up to the longest, half of it random */
    uint64_t longest_backoff_ns; /* 0: 60 s */
    uint64_t ping_interval_ns;   /* 0: 10 s, or what the collector wishes */
};

struct ltn_agent_control;

/* Prepares the stream to where push sends metrics, with its token, headers and
 * certificates. LTN_ERR_CONFIG,
 * -ENOMEM. Free with ltn_agent_control_close. */
int ltn_agent_control_open(const struct ltn_agent_control_conf *conf,
                           const struct ltn_push_conf *push, struct ltn_agent_control **ret_control,
                           struct ltn_errinfo *info) ltn_must_check;

/* Starts the threads. 0 or -errno. */
int ltn_agent_control_start(struct ltn_agent_control *c) ltn_must_check;

/* Ends the stream and the threads, frees. A running query is cancelled. NULL is ignored. */
void ltn_agent_control_close(struct ltn_agent_control *c);

/* ---- what the collector thinks of this node ---- */

enum ltn_agent_verdict_state {
    LTN_AGENT_VERDICT_UNKNOWN,
    LTN_AGENT_VERDICT_CLEAR,
    LTN_AGENT_VERDICT_OPEN,
    LTN_AGENT_VERDICT_CANNOT_TELL,
};

struct ltn_agent_verdict {
    char id[192];
    char job[256];
    char cause[64];
    uint32_t rank;
    enum ltn_agent_verdict_state state;
    uint64_t since_unix_ns;
    uint64_t received_unix_ns;
    double effect;          /* 0.2: 20 % slower than its peers */
    double explained_share; /* by the cause */
};

/* Copies the newest verdicts, newest first; returns how many. Any thread. */
size_t ltn_agent_control_verdicts(struct ltn_agent_control *c, struct ltn_agent_verdict *out,
                                  size_t max);

/* name, help */
#define LTN_AGENT_CONTROL_COUNTERS(X)                                                              \
    X(attaches, "streams that the collector welcomed")                                             \
    X(failures, "streams that failed or ended")                                                    \
    X(pings, "clock exchanges completed")                                                          \
    X(queries, "queries taken")                                                                    \
    X(queries_refused, "queries refused: too many wait")                                           \
    X(queries_failed, "queries that ended with an error")                                          \
    X(queries_cancelled, "queries taken back by the collector or with the stream")                 \
    X(pages, "pages of rows sent")                                                                 \
    X(pages_dropped, "pages dropped: their query was taken back")                                  \
    X(verdicts, "verdicts received")                                                               \
    X(malformed, "messages of the collector that could not be read")

struct ltn_agent_control_stats {
#define LTN_AGENT_CONTROL_STAT(name, help) uint64_t name;
    LTN_AGENT_CONTROL_COUNTERS(LTN_AGENT_CONTROL_STAT)
#undef LTN_AGENT_CONTROL_STAT
    bool attached;
    int64_t clock_offset_ns; /* collector minus node */
    uint64_t round_trip_ns;  /* of the best recent exchange; 0: none yet */
    char last_error[160];
};

/* Any thread. */
void ltn_agent_control_stats(struct ltn_agent_control *c, struct ltn_agent_control_stats *ret);

#endif /* LTN_PUSH_CONTROL_H */
