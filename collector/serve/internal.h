/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of collector/serve share. */
#ifndef LTN_SERVE_INTERNAL_H
#define LTN_SERVE_INTERNAL_H

#include "base/json.h"
#include "serve/serve.h"

/* Sends what was written; the buffer is empty afterwards. */
void ltn_serve_reply_json(struct ltn_http_request *req, int status, struct ltn_buf *b);

/* "5m" (that long ago), Unix ns, or nothing: everything kept. False when it is neither. */
bool ltn_serve_parse_since(struct ltn_http_request *req, uint64_t now_ns, uint64_t *ret_ns);

/* True when the query has no parameter but these; else the request is answered. */
bool ltn_serve_only_params(struct ltn_http_request *req, const char *const *names, size_t n,
                           const char *message);
/* metrics.c: GET /metrics. */
void ltn_serve_on_metrics(void *arg, struct ltn_http_request *req);

/* query.c: POST /api/v1/query. */
void ltn_serve_on_query(void *arg, struct ltn_http_request *req);

/* json.c: one object each, as values. */
void ltn_serve_overview(struct ltn_json *j, const struct ltn_serve *s, uint64_t now_ns);
void ltn_serve_node(struct ltn_json *j, const struct ltn_serve *s, const struct ltn_fleet_node *n,
                    bool full, uint64_t now_ns);

/* How much of a job is wanted. */
struct ltn_job_query {
    bool ranks;           /* its ranks, too */
    size_t windows;       /* newest remembered windows of each */
    const char *rank_key; /* NULL: all ranks */
};
void ltn_serve_job(struct ltn_json *j, const struct ltn_serve *s, const struct ltn_fleet_job *job,
                   const struct ltn_job_query *q, uint64_t now_ns);
/* "stragglers": [...] of verdicts that were open at or after since_ns. */
void ltn_serve_stragglers(struct ltn_json *j, const struct ltn_serve *s, uint64_t since_ns);

/* One object each. */
void ltn_serve_verdict(struct ltn_json *j, const struct ltn_straggler_verdict *v);
void ltn_serve_incident(struct ltn_json *j, const struct ltn_fleet_incident *i);

struct ltn_incident_query {
    uint64_t since_ns;
    const char *node;     /* NULL: all */
    const char *severity; /* NULL: all */
    size_t limit;
};
void ltn_serve_incidents(struct ltn_json *j, const struct ltn_serve *s,
                         const struct ltn_incident_query *q);

/* live.c: members of an object. Sums over the nodes, or of one (NULL: all). */
void ltn_serve_ops(struct ltn_json *j, const struct ltn_serve *s, const char *node,
                   uint64_t now_ns);
void ltn_serve_ingest(struct ltn_json *j, const struct ltn_serve *s, uint64_t now_ns);

/* page.c: the page or one of its files, by the request's path. */
void ltn_serve_on_page(void *arg, struct ltn_http_request *req);

/* The ingest's counters with what the server refused before: broken bodies and such over the limits
 * as malformed, requests beyond load and memory as busy. */
void ltn_serve_ingest_stats(const struct ltn_serve *s, struct ltn_ingest_stats *ret);

/* True and no reason when ready; else reasons, as many as fit. */
#define LTN_READY_REASONS 4
size_t ltn_serve_not_ready(const struct ltn_serve *s, char reasons[LTN_READY_REASONS][192]);

/* Values of a map sorted by name, for stable answers; *ret_n of them. Free with free(). NULL when
 * empty or out of memory. */
void **ltn_serve_sorted(const struct ltn_map *m, int (*cmp)(const void *, const void *),
                        size_t *ret_n);
int ltn_serve_by_node_name(const void *a, const void *b);
int ltn_serve_by_job_key(const void *a, const void *b);
int ltn_serve_by_rank(const void *a, const void *b);

#endif /* LTN_SERVE_INTERNAL_H */
