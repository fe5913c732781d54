/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of collector/query share. */
#ifndef LTN_QUERY_INTERNAL_H
#define LTN_QUERY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "query/query.h"

#define LTN_QUERY_COLUMN_BYTES 128
#define LTN_QUERY_NOTE_BYTES   192

/* ---- rows.c ---- */

/* Rows as they came: for each its length and its cells. */
struct rowset {
    struct ltn_buf b;
    size_t count;
};
void ltn_rowset_init(struct rowset *r, size_t max_bytes);
void ltn_rowset_done(struct rowset *r);
int ltn_rowset_put(struct rowset *r, struct ltn_control_str row) ltn_must_check;
bool ltn_rowset_next(const struct rowset *r, size_t *pos, struct ltn_control_str *ret);

/* Column names in one text, each ended by NUL. */
struct columns {
    char *text;
    size_t bytes;
    size_t n;
};
void ltn_columns_done(struct columns *c);
/* Cleans and copies. 0, -ENOMEM. */
int ltn_columns_put(struct columns *c, const char *name, size_t n) ltn_must_check;
const char *ltn_columns_at(const struct columns *c, size_t i);

/* ---- hub.c ---- */

struct agent {
    struct agent *prev, *next;
    struct ltn_query_hub *hub;
    struct ltn_http_request *stream;
    char node[LTN_NAME_BYTES]; /* "" until it said hello */
    char instance[64];
    uint64_t opened_ns, heard_ns, attached_unix_ns;
    uint64_t tokens_ns; /* bucket of messages: full at this time minus what was taken */
    unsigned strikes;
    bool has_clock;
    int64_t clock_offset_ns;
    uint64_t clock_uncertainty_ns;
};

/* ---- fanout.c ---- */

struct part {
    char node[LTN_NAME_BYTES];
    struct agent *agent; /* NULL: none, or gone */
    enum ltn_query_node_state state;
    int code; /* gRPC status it failed with */
    bool has_columns;
    uint32_t next_page;
    struct columns columns;
    struct rowset rows;
    bool truncated;
    uint64_t elapsed_ns;
    char note[LTN_QUERY_NOTE_BYTES];
};

struct ltn_query_answer {
    struct ltn_query_hub *hub;
    struct ltn_task task; /* brings it back from the reducer */
    struct ltn_query_answer *next;
    uint64_t id;
    struct ltn_query_asker asker;
    char *sql, *reduce;
    uint64_t limit, timeout_ns, started_ns, elapsed_ns;
    size_t bytes;
    struct part *parts; /* by name */
    size_t n, waits;
    bool reducing;
    atomic_bool cancelled;
    /* the outcome */
    int rc;
    char message[LTN_ERRINFO_BYTES];
    struct columns columns;
    bool adds_node; /* a column of ours stands first */
    bool reduced;   /* rows are in result, not in the parts */
    bool truncated;
    struct rowset result;
};

struct ltn_query_hub {
    struct ltn_loop *loop;
    const struct ltn_fleet *fleet;
    struct ltn_query_opts opts;
    struct ltn_timer tick;
    struct agent *agents;
    size_t agents_n;
    struct ltn_map by_node; /* struct agent */
    struct ltn_query_answer *running[LTN_QUERY_MAX_RUNNING];
    size_t running_n;
    uint64_t first_id, next_id;
    size_t held_bytes;
    bool draining;
    struct ltn_query_stats stats;
    /* reducer */
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool stop;
    struct ltn_query_answer *first, **last;
};

/* Queues a message on the agent's stream; false when it takes nothing any more (the tick ends it).
 * Takes the buffer. */
bool ltn_agent_send(struct agent *a, struct ltn_buf *b);
void ltn_hub_tick_soon(struct ltn_query_hub *h);

void ltn_fanout_page(struct agent *a, const struct ltn_control_page *page);
void ltn_fanout_end(struct agent *a, const struct ltn_control_end *end);
void ltn_fanout_gone(struct agent *a);
/* Deadlines and askers that went. */
void ltn_fanout_tick(struct ltn_query_hub *h, uint64_t now_ns);
/* All that still run end with an error. */
void ltn_fanout_stop(struct ltn_query_hub *h);
/* Back from the reducer. */
void ltn_fanout_reduced(struct ltn_query_answer *q);
/* Which columns most nodes agree on; the others become mismatches. 0, -ENOMEM. */
int ltn_query_settle(struct ltn_query_answer *q) ltn_must_check;

/* ---- reduce.c ---- */

int ltn_reducer_start(struct ltn_query_hub *h) ltn_must_check;
void ltn_reducer_stop(struct ltn_query_hub *h);
void ltn_reducer_take(struct ltn_query_hub *h, struct ltn_query_answer *q);

#endif /* LTN_QUERY_INTERNAL_H */
