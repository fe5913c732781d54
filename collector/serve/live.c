/* SPDX-License-Identifier: Apache-2.0 */
/* Counters as they stand now: traced operations over the fleet, and what came in and was dropped.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "serve/internal.h"

#define MAX_OPS 4096 /* distinct operations in one answer */

/* ---- operations ---- */

struct sum {
    struct ltn_fleet_op op;
    size_t nodes;
};

struct sums {
    struct ltn_map map; /* "source\x1fop" -> struct sum */
    uint64_t left_out;
};

static void add(struct sums *s, const struct ltn_fleet_op *o)
{
    char key[sizeof(o->source) + sizeof(o->op) + 1];
    int n = snprintf(key, sizeof(key), "%s\x1f%s", o->source, o->op);
    struct sum *t = ltn_map_get(&s->map, key, (size_t)n);
    if (t == NULL) {
        t = calloc(1, sizeof(*t));
        if (t == NULL || ltn_map_put(&s->map, key, (size_t)n, t) != 0) {
            free(t);
            s->left_out++;
            return;
        }
        memcpy(t->op.source, o->source, sizeof(t->op.source));
        memcpy(t->op.op, o->op, sizeof(t->op.op));
    }
    t->nodes++;
    t->op.calls += o->calls;
    t->op.errors += o->errors;
    t->op.bytes += o->bytes;
    if (!o->has_duration)
        return;
    t->op.has_duration = true;
    t->op.duration_s += o->duration_s;
    for (size_t i = 0; i < LTN_DURATION_BUCKETS; i++)
        t->op.buckets[i] += o->buckets[i];
}

/* Upper bound of the bucket that the quantile falls into; null above the last or without data. */
static void kv_at_most(struct ltn_json *j, const char *key, const struct ltn_fleet_op *o, double q)
{
    uint64_t total = 0, below = 0;
    for (size_t i = 0; i < LTN_DURATION_BUCKETS; i++)
        total += o->buckets[i];
    ltn_json_key(j, key);
    for (size_t i = 0; total > 0 && i < LTN_DURATION_BOUNDS; i++) {
        below += o->buckets[i];
        if ((double)below >= q * (double)total) {
            ltn_json_u64(j, (uint64_t)llround(ltn_duration_bounds[i] * 1e9));
            return;
        }
    }
    ltn_json_null(j);
}

static void put_sum(struct ltn_json *j, const struct sum *t)
{
    const struct ltn_fleet_op *o = &t->op;
    uint64_t measured = 0;
    for (size_t i = 0; i < LTN_DURATION_BUCKETS; i++)
        measured += o->buckets[i];
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "source", o->source);
    ltn_json_kv_str(j, "op", o->op);
    ltn_json_kv_u64(j, "nodes", t->nodes);
    ltn_json_kv_u64(j, "calls", o->calls);
    ltn_json_kv_u64(j, "errors", o->errors);
    ltn_json_kv_u64(j, "bytes", o->bytes);
    ltn_json_key(j, "total_ns");
    if (o->has_duration)
        ltn_json_u64(j, (uint64_t)llround(fmin(o->duration_s, 1e9) * 1e9));
    else
        ltn_json_null(j);
    ltn_json_key(j, "mean_ns");
    if (o->has_duration && measured > 0)
        ltn_json_u64(j, (uint64_t)llround(fmin(o->duration_s / (double)measured, 1e9) * 1e9));
    else
        ltn_json_null(j);
    kv_at_most(j, "p50_at_most_ns", o, 0.5);
    kv_at_most(j, "p99_at_most_ns", o, 0.99);
    ltn_json_close_object(j);
}

static int busiest_first(const void *a, const void *b)
{
    const struct sum *const *x = a, *const *y = b;
    if ((*x)->op.calls != (*y)->op.calls)
        return (*x)->op.calls > (*y)->op.calls ? -1 : 1;
    int c = strcmp((*x)->op.source, (*y)->op.source);
    return c != 0 ? c : strcmp((*x)->op.op, (*y)->op.op);
}

void ltn_serve_ops(struct ltn_json *j, const struct ltn_serve *s, const char *node, uint64_t now_ns)
{
    struct sums sums = {.left_out = 0};
    size_t pos = 0, n = 0;
    ltn_map_init(&sums.map, MAX_OPS);
    for (const struct ltn_fleet_node *o; (o = ltn_map_next(&s->fleet->nodes, &pos)) != NULL;) {
        size_t at = 0;
        if (node != NULL && strcmp(node, o->name) != 0)
            continue;
        for (const struct ltn_fleet_op *op; (op = ltn_map_next(&o->ops, &at)) != NULL;)
            add(&sums, op);
    }
    void **all = ltn_serve_sorted(&sums.map, busiest_first, &n);
    ltn_json_kv_time(j, "now", "now_ns", now_ns);
    ltn_json_key(j, "ops");
    ltn_json_open_array(j);
    for (size_t i = 0; i < n; i++)
        put_sum(j, all[i]);
    ltn_json_close_array(j);
    ltn_json_kv_u64(j, "left_out", sums.left_out);
    free(all);
    ltn_map_done(&sums.map, free);
}

/* ---- intake ---- */

void ltn_serve_ingest_stats(const struct ltn_serve *s, struct ltn_ingest_stats *ret)
{
    struct ltn_http_stats st;
    ltn_http_server_stats(s->otlp_server, &st);
    *ret = *ltn_ingest_stats(s->ingest);
    ret->rejected_malformed += st.refused_malformed + st.refused_body;
    ret->rejected_busy += st.refused_load + st.refused_budget;
}

static void put_ingest(struct ltn_json *j, const struct ltn_serve *s)
{
    struct ltn_ingest_stats in;
    ltn_serve_ingest_stats(s, &in);
    ltn_json_key(j, "ingest");
    ltn_json_open_object(j);
#define PUT(name, help) ltn_json_kv_u64(j, #name, in.name);
    LTN_INGEST_COUNTERS(PUT)
#undef PUT
    ltn_json_kv_u64(j, "in_flight", in.in_flight);
    ltn_json_kv_f64(j, "decode_seconds", in.decode_seconds);
    ltn_json_close_object(j);
}

static void put_store(struct ltn_json *j, struct ltn_store *store)
{
    struct ltn_store_stats st;
    ltn_store_stats(store, &st);
    ltn_json_key(j, "store");
    ltn_json_open_object(j);
    ltn_json_kv_bool(j, "writable", st.writable);
    ltn_json_kv_str(j, "error", st.error[0] != '\0' ? st.error : NULL);
    ltn_json_kv_u64(j, "commits", st.commits);
    ltn_json_kv_u64(j, "failed_commits", st.failed_commits);
    ltn_json_kv_u64(j, "refused_busy", st.refused_busy);
    ltn_json_kv_u64(j, "refused_disk", st.refused_disk);
    ltn_json_kv_u64(j, "verdicts_waiting", st.verdicts_waiting);
    ltn_json_kv_u64(j, "verdicts_lost", st.verdicts_lost);
    ltn_json_kv_u64(j, "file_bytes", st.file_bytes);
    ltn_json_kv_u64(j, "queue_items", st.queue_items);
    ltn_json_kv_u64(j, "queue_bytes", st.queue_bytes);
    ltn_json_kv_f64(j, "commit_seconds", st.commit_seconds);
    ltn_json_kv_u64(j, "logs_stored", st.logs_stored);
    ltn_json_kv_u64(j, "logs_repeated", st.logs_repeated);
    ltn_json_kv_u64(j, "logs_pruned_age", st.logs_pruned_age);
    ltn_json_kv_u64(j, "logs_pruned_bytes", st.logs_pruned_bytes);
    ltn_json_kv_u64(j, "log_bytes", st.log_bytes);
    ltn_json_close_object(j);
}

/* What agents dropped, by reason, over the fleet. */
static void put_agents(struct ltn_json *j, const struct ltn_fleet *f)
{
    struct ltn_map sums; /* reason -> struct ltn_fleet_drop */
    size_t pos = 0;
    uint64_t calls = 0, missing = 0;
    ltn_map_init(&sums, 256);
    for (const struct ltn_fleet_node *n; (n = ltn_map_next(&f->nodes, &pos)) != NULL;) {
        calls += n->health.calls;
        missing += n->gaps;
        for (size_t i = 0; i < n->drop_count; i++) {
            struct ltn_fleet_drop *d = ltn_map_get_str(&sums, n->drops[i].reason);
            if (d == NULL) {
                d = calloc(1, sizeof(*d));
                if (d == NULL || ltn_map_put_str(&sums, n->drops[i].reason, d) != 0) {
                    free(d);
                    continue;
                }
                memcpy(d->reason, n->drops[i].reason, sizeof(d->reason));
            }
            d->count += n->drops[i].count;
        }
    }
    ltn_json_key(j, "agents");
    ltn_json_open_object(j);
    ltn_json_kv_u64(j, "calls_seen", calls);
    ltn_json_kv_u64(j, "windows_missing", missing);
    ltn_json_key(j, "drops");
    ltn_json_open_object(j);
    pos = 0;
    for (const struct ltn_fleet_drop *d; (d = ltn_map_next(&sums, &pos)) != NULL;)
        ltn_json_kv_u64(j, d->reason, d->count);
    ltn_json_close_object(j);
    ltn_json_close_object(j);
    ltn_map_done(&sums, free);
}

void ltn_serve_ingest(struct ltn_json *j, const struct ltn_serve *s, uint64_t now_ns)
{
    ltn_json_kv_time(j, "now", "now_ns", now_ns);
    put_ingest(j, s);
    put_store(j, s->store);
    ltn_json_key(j, "fleet");
    ltn_json_open_object(j);
#define PUT(name, help) ltn_json_kv_u64(j, #name, s->fleet->counters.name);
    LTN_FLEET_COUNTERS(PUT)
#undef PUT
    ltn_json_close_object(j);
    put_agents(j, s->fleet);
}
