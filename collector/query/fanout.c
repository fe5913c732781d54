/* SPDX-License-Identifier: Apache-2.0 */
/* A question over the agents: statements down, pages up, one answer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "query/internal.h"

#define MAX_SQL_BYTES      ((size_t)64 << 10)
#define MAX_NODE_BYTES     (16ULL << 20) /* asked of one node */
#define MAX_PARTS          40000
#define MAX_NODE_NAME_LIST 20000

/* ---- the end of a question ---- */

static void answer_free(struct ltn_query_answer *q)
{
    for (size_t i = 0; i < q->n; i++) {
        ltn_columns_done(&q->parts[i].columns);
        ltn_rowset_done(&q->parts[i].rows);
    }
    ltn_columns_done(&q->columns);
    ltn_rowset_done(&q->result);
    free(q->parts);
    free(q->sql);
    free(q->reduce);
    free(q);
}

/* Gives the answer to who asked, and forgets it. */
static void deliver(struct ltn_query_answer *q)
{
    struct ltn_query_hub *h = q->hub;
    size_t answered = 0, rows = 0;
    for (size_t i = 0; i < h->running_n; i++)
        if (h->running[i] == q)
            h->running[i] = h->running[--h->running_n];
    for (size_t i = 0; i < q->n; i++) {
        answered += q->parts[i].state == LTN_QUERY_ANSWERED ? 1 : 0;
        q->truncated = q->truncated || q->parts[i].truncated;
        rows += q->parts[i].rows.count;
    }
    q->truncated = q->truncated || (!q->reduced && rows > q->limit);
    q->elapsed_ns = ltn_now_mono_ns() - q->started_ns;
    if (atomic_load(&q->cancelled))
        h->stats.queries_cancelled++;
    else if (q->rc != 0)
        h->stats.queries_failed++;
    else if (answered < q->n)
        h->stats.queries_partial++;
    q->asker.done(q->asker.arg, q);
    h->held_bytes -= q->bytes;
    answer_free(q);
}

static int rc_of_status(int code)
{
    switch (code) {
    case 3:
        return LTN_ERR_MALFORMED;
    case 4:
        return LTN_ERR_TIMEOUT;
    case 7:
        return LTN_ERR_FORBIDDEN;
    case 8:
        return LTN_ERR_TOO_LARGE;
    default:
        return LTN_ERR_UNAVAILABLE;
    }
}

/* Nobody answered: what the first of them says stands for all. */
static void set_failure(struct ltn_query_answer *q)
{
    const struct part *p = NULL;
    for (size_t i = 0; i < q->n && p == NULL; i++)
        p = q->parts[i].state == LTN_QUERY_FAILED ? &q->parts[i] : NULL;
    for (size_t i = 0; i < q->n && p == NULL; i++)
        p = q->parts[i].state == LTN_QUERY_TIMED_OUT ? &q->parts[i] : NULL;
    p = p != NULL ? p : &q->parts[0];
    q->rc = p->state == LTN_QUERY_FAILED
                ? rc_of_status(p->code)
                : (p->state == LTN_QUERY_TIMED_OUT ? LTN_ERR_TIMEOUT : LTN_ERR_UNAVAILABLE);
    (void)snprintf(q->message, sizeof(q->message), "no node answered; %.64s: %.160s", p->node,
                   p->note);
}

static void finish(struct ltn_query_answer *q)
{
    struct ltn_query_hub *h = q->hub;
    size_t answered = 0;
    for (size_t i = 0; i < q->n; i++)
        answered += q->parts[i].state == LTN_QUERY_ANSWERED ? 1 : 0;
    if (answered == 0) {
        set_failure(q);
        deliver(q);
        return;
    }
    q->rc = ltn_query_settle(q);
    if (q->rc != 0) {
        (void)snprintf(q->message, sizeof(q->message), "%s", ltn_err_str(q->rc));
    } else if (q->reduce != NULL) {
        q->reducing = true;
        ltn_reducer_take(h, q);
        return;
    }
    deliver(q);
}

void ltn_fanout_reduced(struct ltn_query_answer *q)
{
    q->reducing = false;
    deliver(q);
}

/* ---- one node's part ---- */

static void send_cancel(struct agent *a, uint64_t id)
{
    struct ltn_buf b;
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_cancel(&b, id);
    (void)ltn_agent_send(a, &b);
}

/* The part is over; the caller finishes the question when it was the last. */
static void settle_part(struct ltn_query_answer *q, struct part *p, enum ltn_query_node_state state)
{
    p->state = state;
    p->agent = NULL;
    p->elapsed_ns = ltn_now_mono_ns() - q->started_ns;
    q->waits--;
}

static void fail_part(struct ltn_query_answer *q, struct part *p, enum ltn_query_node_state state,
                      const char *note)
{
    (void)ltn_copy_str(p->note, sizeof(p->note), note);
    settle_part(q, p, state);
}

/* The agent's answer breaks the rules: the rest of it is not wanted. */
static void reject_part(struct ltn_query_answer *q, struct part *p, struct agent *a,
                        const char *note)
{
    q->hub->stats.node_errors++;
    a->strikes += 16;
    send_cancel(a, q->id);
    fail_part(q, p, LTN_QUERY_FAILED, note);
}

static int by_name(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return strcmp(x->node, y->node);
}

static struct part *find_part(const struct ltn_query_answer *q, const char *node)
{
    size_t low = 0, high = q->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = strcmp(q->parts[mid].node, node);
        if (c == 0)
            return &q->parts[mid];
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* The part that waits for this agent under this id; else counts what came. */
static struct part *expect(struct agent *a, uint64_t id, bool page, struct ltn_query_answer **ret_q)
{
    struct ltn_query_hub *h = a->hub;
    for (size_t i = 0; i < h->running_n; i++) {
        struct ltn_query_answer *q = h->running[i];
        struct part *p = q->id == id ? find_part(q, a->node) : NULL;
        if (p != NULL && p->state == LTN_QUERY_WAITS && p->agent == a) {
            *ret_q = q;
            return p;
        }
    }
    a->strikes++;
    if (!page)
        return NULL;
    if (id >= h->first_id && id < h->next_id)
        h->stats.pages_late++;
    else
        h->stats.pages_unasked++;
    return NULL;
}

/* ---- pages ---- */

static void account(struct ltn_query_answer *q, size_t before, size_t after)
{
    q->bytes += after - before;
    q->hub->held_bytes += after - before;
}

static int take_columns(struct ltn_query_answer *q, struct part *p,
                        const struct ltn_control_page *page)
{
    struct ltn_control_str name;
    size_t pos = 0;
    int rc = 0;
    while (rc == 0 && ltn_control_next_column(page, &pos, &name))
        rc = ltn_columns_put(&p->columns, name.p, name.n);
    account(q, 0, p->columns.bytes);
    p->has_columns = true;
    return rc;
}

static int take_rows(struct ltn_query_answer *q, struct part *p,
                     const struct ltn_control_page *page)
{
    struct ltn_control_str row;
    size_t pos = 0, before = p->rows.b.size;
    int rc = 0;
    while (rc == 0 && ltn_control_next_row(page, &pos, &row))
        rc = ltn_rowset_put(&p->rows, row);
    account(q, before, p->rows.b.size);
    return rc;
}

static bool page_fits(const struct part *p, const struct ltn_control_page *page)
{
    if (page->page != p->next_page)
        return false;
    if (page->page == 0)
        return page->columns > 0 && (page->rows == 0 || (page->min_cells == page->columns &&
                                                         page->max_cells == page->columns));
    return page->columns == 0 && page->rows > 0 && page->min_cells == p->columns.n &&
           page->max_cells == p->columns.n;
}

static uint64_t node_rows(const struct ltn_query_answer *q)
{
    return q->reduce != NULL ? LTN_QUERY_MAX_LIMIT : q->limit;
}

static bool over_limits(const struct ltn_query_answer *q, const struct part *p)
{
    const struct ltn_query_hub *h = q->hub;
    return p->rows.count > node_rows(q) || q->bytes > h->opts.max_query_bytes ||
           h->held_bytes > h->opts.max_bytes;
}

void ltn_fanout_page(struct agent *a, const struct ltn_control_page *page)
{
    struct ltn_query_answer *q = NULL;
    struct ltn_query_hub *h = a->hub;
    struct part *p = expect(a, page->id, true, &q);
    if (p == NULL)
        return;
    if (!page_fits(p, page)) {
        reject_part(q, p, a, "its pages do not fit together");
    } else {
        int rc = page->page == 0 ? take_columns(q, p, page) : 0;
        if (rc == 0)
            rc = take_rows(q, p, page);
        p->next_page++;
        h->stats.pages++;
        h->stats.rows += page->rows;
        if (rc != 0 || over_limits(q, p)) {
            h->stats.rows_over_limit++;
            send_cancel(a, q->id);
            p->truncated = true;
            fail_part(q, p, LTN_QUERY_ANSWERED, "cut off at the limit of rows or memory");
        }
    }
    if (q->waits == 0)
        finish(q);
}

void ltn_fanout_end(struct agent *a, const struct ltn_control_end *end)
{
    struct ltn_query_answer *q = NULL;
    struct ltn_query_hub *h = a->hub;
    struct part *p = expect(a, end->id, false, &q);
    if (p == NULL)
        return;
    if (end->code == 0 && p->has_columns) {
        p->truncated = end->truncated;
        settle_part(q, p, LTN_QUERY_ANSWERED);
    } else {
        char note[LTN_QUERY_NOTE_BYTES];
        ltn_text_clean(note, sizeof(note), end->message.p, end->message.n);
        h->stats.node_errors++;
        p->code = end->code;
        fail_part(q, p, end->code == 4 ? LTN_QUERY_TIMED_OUT : LTN_QUERY_FAILED,
                  note[0] != '\0' ? note : "it gave no rows and no reason");
    }
    if (q->waits == 0)
        finish(q);
}

void ltn_fanout_gone(struct agent *a)
{
    struct ltn_query_hub *h = a->hub;
    /* Backwards: finishing takes a question out of the list. */
    for (size_t i = h->running_n; i-- > 0;) {
        struct ltn_query_answer *q = h->running[i];
        struct part *p = find_part(q, a->node);
        if (p == NULL || p->state != LTN_QUERY_WAITS || p->agent != a)
            continue;
        h->stats.node_lost++;
        fail_part(q, p, LTN_QUERY_UNREACHABLE, "its stream ended before the answer");
        if (q->waits == 0)
            finish(q);
    }
}

/* ---- time ---- */

static void give_up(struct ltn_query_answer *q, const char *note)
{
    for (size_t i = 0; i < q->n; i++) {
        struct part *p = &q->parts[i];
        if (p->state != LTN_QUERY_WAITS)
            continue;
        q->hub->stats.node_timeouts++;
        send_cancel(p->agent, q->id);
        fail_part(q, p, LTN_QUERY_TIMED_OUT, note);
    }
}

void ltn_fanout_tick(struct ltn_query_hub *h, uint64_t now_ns)
{
    for (size_t i = h->running_n; i-- > 0;) {
        struct ltn_query_answer *q = h->running[i];
        char note[LTN_QUERY_NOTE_BYTES];
        if (q->asker.gone != NULL && q->asker.gone(q->asker.arg))
            atomic_store(&q->cancelled, true); /* the reducer looks at it too */
        bool late = now_ns - q->started_ns >= q->timeout_ns;
        if (q->reducing || (!late && !atomic_load(&q->cancelled)))
            continue;
        (void)snprintf(note, sizeof(note), "no answer within %.3g s",
                       (double)q->timeout_ns / (double)LTN_NS_PER_S);
        give_up(q, note);
        finish(q);
    }
}

void ltn_fanout_stop(struct ltn_query_hub *h)
{
    for (size_t i = h->running_n; i-- > 0;) {
        struct ltn_query_answer *q = h->running[i];
        if (q->reducing)
            continue; /* its task waits in the loop, which calls it when it is freed */
        q->rc = LTN_ERR_UNAVAILABLE;
        (void)snprintf(q->message, sizeof(q->message), "the collector is shutting down");
        deliver(q);
    }
}

/* ---- asking ---- */

static void add_part(struct ltn_query_answer *q, const char *node, struct agent *a,
                     const char *note)
{
    struct part *p = &q->parts[q->n++];
    (void)ltn_copy_str(p->node, sizeof(p->node), node);
    p->agent = a;
    p->state = a != NULL ? LTN_QUERY_WAITS : LTN_QUERY_UNREACHABLE;
    ltn_rowset_init(&p->rows, q->hub->opts.max_query_bytes);
    (void)ltn_copy_str(p->note, sizeof(p->note), a != NULL ? "" : note);
    q->waits += a != NULL ? 1 : 0;
}

static int add_named(struct ltn_query_answer *q, const struct ltn_query_request *r)
{
    struct ltn_query_hub *h = q->hub;
    q->parts = calloc(r->node_count, sizeof(*q->parts));
    if (q->parts == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < r->node_count; i++) {
        struct agent *a = ltn_map_get_str(&h->by_node, r->nodes[i]);
        bool known = ltn_map_get_str(&h->fleet->nodes, r->nodes[i]) != NULL;
        add_part(q, r->nodes[i], a,
                 known ? "its agent has no stream to this collector" : "no such node");
    }
    qsort(q->parts, q->n, sizeof(*q->parts), by_name);
    size_t kept = 0;
    for (size_t i = 0; i < q->n; i++) {
        if (kept > 0 && strcmp(q->parts[kept - 1].node, q->parts[i].node) == 0)
            q->waits -= q->parts[i].agent != NULL ? 1 : 0; /* named twice */
        else
            q->parts[kept++] = q->parts[i];
    }
    q->n = kept;
    return 0;
}

static int add_all(struct ltn_query_answer *q)
{
    struct ltn_query_hub *h = q->hub;
    size_t pos = 0, most = h->by_node.len + h->fleet->nodes.len;
    most = most < MAX_PARTS ? most : MAX_PARTS;
    q->parts = calloc(most + 1, sizeof(*q->parts));
    if (q->parts == NULL)
        return -ENOMEM;
    for (struct agent *a; q->n < most && (a = ltn_map_next(&h->by_node, &pos)) != NULL;)
        add_part(q, a->node, a, "");
    pos = 0;
    for (const struct ltn_fleet_node *n;
         q->n < most && (n = ltn_map_next(&h->fleet->nodes, &pos)) != NULL;)
        if (ltn_map_get_str(&h->by_node, n->name) == NULL)
            add_part(q, n->name, NULL, "its agent has no stream to this collector");
    qsort(q->parts, q->n, sizeof(*q->parts), by_name);
    return 0;
}

static void send_all(struct ltn_query_answer *q)
{
    const struct ltn_control_query m = {.id = q->id,
                                        .sql = ltn_control_str(q->sql),
                                        .max_rows = (uint32_t)node_rows(q),
                                        .max_bytes = MAX_NODE_BYTES,
                                        .timeout_ns = q->timeout_ns - q->timeout_ns / 10};
    for (size_t i = 0; i < q->n; i++) {
        struct part *p = &q->parts[i];
        struct ltn_buf b;
        if (p->agent == NULL)
            continue;
        ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
        ltn_control_put_query(&b, &m);
        if (ltn_agent_send(p->agent, &b))
            q->hub->stats.node_queries++;
        else
            fail_part(q, p, LTN_QUERY_UNREACHABLE, "its agent takes nothing any more");
    }
}

static int check(const struct ltn_query_hub *h, const struct ltn_query_request *r,
                 struct ltn_errinfo *info)
{
    if (r->sql == NULL || r->sql[0] == '\0')
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "no statement given");
    if (strlen(r->sql) > MAX_SQL_BYTES || (r->reduce != NULL && strlen(r->reduce) > MAX_SQL_BYTES))
        return ltn_errinfo_set(info, LTN_ERR_TOO_LARGE, "a statement of more than 64 KiB");
    if (r->limit > LTN_QUERY_MAX_LIMIT)
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "limit: at most %d rows",
                               LTN_QUERY_MAX_LIMIT);
    if (r->timeout_ns > LTN_QUERY_MAX_TIME_NS)
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "timeout_ms: at most %llu",
                               LTN_QUERY_MAX_TIME_NS / LTN_NS_PER_MS);
    if (r->nodes != NULL && (r->node_count == 0 || r->node_count > MAX_NODE_NAME_LIST))
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "nodes: 1 to %d names", MAX_NODE_NAME_LIST);
    if (h->draining)
        return ltn_errinfo_set(info, LTN_ERR_UNAVAILABLE, "the collector is shutting down");
    if (h->running_n >= h->opts.max_queries)
        return ltn_errinfo_set(info, LTN_ERR_BUSY, "%zu questions run already, try again",
                               h->running_n);
    return 0;
}

static struct ltn_query_answer *answer_new(struct ltn_query_hub *h,
                                           const struct ltn_query_request *r,
                                           const struct ltn_query_asker *asker)
{
    struct ltn_query_answer *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return NULL;
    q->hub = h;
    q->asker = *asker;
    q->sql = strdup(r->sql);
    q->reduce = r->reduce != NULL ? strdup(r->reduce) : NULL;
    q->limit = r->limit != 0 ? r->limit : LTN_QUERY_DEFAULT_LIMIT;
    q->timeout_ns = r->timeout_ns != 0 ? r->timeout_ns : LTN_QUERY_DEFAULT_TIME_NS;
    q->started_ns = ltn_now_mono_ns();
    if (q->sql == NULL || (r->reduce != NULL && q->reduce == NULL)) {
        answer_free(q);
        return NULL;
    }
    return q;
}

int ltn_query_ask(struct ltn_query_hub *h, const struct ltn_query_request *r,
                  const struct ltn_query_asker *asker, struct ltn_errinfo *info)
{
    int rc = check(h, r, info);
    if (rc != 0) {
        h->stats.queries_refused += rc == LTN_ERR_BUSY ? 1 : 0;
        return rc;
    }
    struct ltn_query_answer *q = answer_new(h, r, asker);
    if (q == NULL)
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    rc = r->nodes != NULL ? add_named(q, r) : add_all(q);
    if (rc == 0 && q->waits == 0)
        rc = ltn_errinfo_set(info, LTN_ERR_UNAVAILABLE, "%s",
                             r->nodes != NULL ? "none of these nodes has a stream to this collector"
                                              : "no agent has a stream to this collector");
    if (rc != 0) {
        answer_free(q);
        return rc;
    }
    q->id = h->next_id++;
    h->running[h->running_n++] = q;
    h->stats.queries++;
    send_all(q);
    if (q->waits == 0)
        finish(q);
    else
        ltn_hub_tick_soon(h);
    return 0;
}
