/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control streams of the agents, and questions that fan out over them. Loop thread. docs/fan-out.md
 * says what users see.
 */
#ifndef LTN_QUERY_QUERY_H
#define LTN_QUERY_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "control/message.h"
#include "fleet/fleet.h"
#include "http/server.h"
#include "io/loop.h"

/* name, help */
#define LTN_QUERY_COUNTERS(X)                                                                      \
    X(attaches, "streams of agents that said who they are")                                        \
    X(attaches_refused, "streams refused: too many, or shutting down")                             \
    X(replaced, "streams ended because a newer one of the same node came")                         \
    X(silent, "streams ended for silence")                                                         \
    X(hostile, "streams ended for breaking the protocol")                                          \
    X(stuck, "streams ended because the agent took nothing any more")                              \
    X(malformed, "messages that could not be read")                                                \
    X(pings, "clock exchanges answered")                                                           \
    X(verdicts_sent, "verdicts sent to their nodes")                                               \
    X(verdicts_unsent, "verdicts whose node had no stream")                                        \
    X(verdict_acks, "verdicts acknowledged")                                                       \
    X(queries, "questions taken")                                                                  \
    X(queries_refused, "questions refused: too many at a time")                                    \
    X(queries_partial, "answers that lack a node")                                                 \
    X(queries_failed, "questions without an answer")                                               \
    X(queries_cancelled, "questions whose asker had gone")                                         \
    X(node_queries, "statements sent to nodes")                                                    \
    X(node_errors, "statements that failed on their node")                                         \
    X(node_timeouts, "statements without an answer in time")                                       \
    X(node_lost, "statements whose stream ended before the answer")                                \
    X(pages, "pages of rows taken")                                                                \
    X(rows, "rows taken")                                                                          \
    X(pages_late, "pages dropped: their question had ended")                                       \
    X(pages_unasked, "pages dropped: nobody had asked")                                            \
    X(rows_over_limit, "answers of nodes cut off at a limit of rows or memory")

struct ltn_query_stats {
#define LTN_QUERY_STAT(name, help) uint64_t name;
    LTN_QUERY_COUNTERS(LTN_QUERY_STAT)
#undef LTN_QUERY_STAT
    size_t streams;    /* open now */
    size_t running;    /* questions now */
    size_t held_bytes; /* rows of all questions now */
};

struct ltn_query_opts {
    size_t max_streams;        /* 0: 20000 */
    size_t max_queries;        /* at a time; 0: 4, at most LTN_QUERY_MAX_RUNNING */
    size_t max_query_bytes;    /* rows of one question; 0: 64 MiB */
    size_t max_bytes;          /* rows of all questions; 0: 192 MiB */
    uint64_t silence_ns;       /* a stream without a word ends after; 0: 45 s */
    uint64_t ping_interval_ns; /* asked of the agents; 0: 10 s */
};
#define LTN_QUERY_MAX_RUNNING 32

struct ltn_query_hub;

/* loop and fleet are borrowed. NULL when memory or threads are out. */
struct ltn_query_hub *ltn_query_hub_new(struct ltn_loop *loop, const struct ltn_fleet *fleet,
                                        const struct ltn_query_opts *opts) ltn_must_check;
/* Takes streams on this server. 0 or the server's error. */
int ltn_query_hub_route(struct ltn_query_hub *h, struct ltn_http_server *server) ltn_must_check;
/* Tells the agents to go elsewhere, ends their streams, takes no more. */
void ltn_query_hub_drain(struct ltn_query_hub *h);
/* After the servers were freed and before the loop is: answers what still runs with an error and
 * ends the thread. NULL is ignored. */
void ltn_query_hub_stop(struct ltn_query_hub *h);
/* After the loop was freed. NULL is ignored. */
void ltn_query_hub_free(struct ltn_query_hub *h);

/* Tells the verdict's node. */
void ltn_query_hub_verdict(struct ltn_query_hub *h, const struct ltn_straggler_verdict *v);

/* What is known of a node by its stream. */
struct ltn_query_node {
    bool attached;
    bool has_clock;
    int64_t clock_offset_ns; /* node minus collector */
    uint64_t clock_uncertainty_ns;
    uint64_t attached_unix_ns;
};
/* False when the node has no stream. */
bool ltn_query_hub_node(const struct ltn_query_hub *h, const char *node,
                        struct ltn_query_node *ret);

void ltn_query_hub_stats(const struct ltn_query_hub *h, struct ltn_query_stats *ret);

/* ---- questions ---- */

#define LTN_QUERY_DEFAULT_LIMIT   10000
#define LTN_QUERY_MAX_LIMIT       100000
#define LTN_QUERY_DEFAULT_TIME_NS (10 * LTN_NS_PER_S)
#define LTN_QUERY_MAX_TIME_NS     (60 * LTN_NS_PER_S)

struct ltn_query_request {
    const char *sql;
    const char *const *nodes; /* NULL: all that are attached */
    size_t node_count;
    const char *reduce;  /* second statement, over the table fleet; NULL: none */
    uint64_t limit;      /* rows of the answer; 0: the default */
    uint64_t timeout_ns; /* 0: the default */
};

struct ltn_query_answer;

/* Called once for each question that was taken, on the loop thread; answer is borrowed. rc not 0:
 * nobody answered, message says why. */
typedef void (*ltn_query_done_fn)(void *arg, const struct ltn_query_answer *answer);

struct ltn_query_asker {
    ltn_query_done_fn done;
    bool (*gone)(void *arg); /* asked now and then: nobody waits any more. NULL: never */
    void *arg;
};

/* Asks. 0; LTN_ERR_BUSY: too many at a time; LTN_ERR_UNAVAILABLE: no agent is attached (or none of
 * those named); LTN_ERR_MALFORMED, LTN_ERR_TOO_LARGE, -ENOMEM. done may be called before this
 * returns only when it returns 0. */
int ltn_query_ask(struct ltn_query_hub *h, const struct ltn_query_request *r,
                  const struct ltn_query_asker *asker, struct ltn_errinfo *info) ltn_must_check;

enum ltn_query_node_state {
    LTN_QUERY_WAITS,
    LTN_QUERY_ANSWERED,
    LTN_QUERY_FAILED,      /* the statement failed there */
    LTN_QUERY_TIMED_OUT,   /* no answer in time */
    LTN_QUERY_UNREACHABLE, /* no stream, or it ended */
    LTN_QUERY_MISMATCH,    /* its columns are not those of the others */
};
const char *ltn_query_node_state_name(enum ltn_query_node_state s);

int ltn_query_answer_rc(const struct ltn_query_answer *a, const char **ret_message);
size_t ltn_query_answer_columns(const struct ltn_query_answer *a);
const char *ltn_query_answer_column(const struct ltn_query_answer *a, size_t i);
bool ltn_query_answer_truncated(const struct ltn_query_answer *a);
uint64_t ltn_query_answer_elapsed_ns(const struct ltn_query_answer *a);

/* Walks the rows: start with a cleared cursor. cells holds LTN_CONTROL_MAX_COLUMNS + 1. */
struct ltn_query_cursor {
    size_t part, pos, count;
};
bool ltn_query_next_row(const struct ltn_query_answer *a, struct ltn_query_cursor *c,
                        struct ltn_control_cell *cells);

/* Walks the nodes, in order of name. */
struct ltn_query_node_answer {
    const char *node;
    enum ltn_query_node_state state;
    const char *message; /* what is wrong, "" when nothing */
    bool truncated;      /* some of its rows are missing */
    uint64_t rows, elapsed_ns;
};
bool ltn_query_node_answer(const struct ltn_query_answer *a, size_t i,
                           struct ltn_query_node_answer *ret);

#endif /* LTN_QUERY_QUERY_H */
