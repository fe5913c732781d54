/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/logs: what the store keeps of log records, read by a thread and a read-only
 * connection of its own, so that a slow search holds up nobody else.
 */
#ifndef LTN_SERVE_LOGS_H
#define LTN_SERVE_LOGS_H

#include "base/attr.h"
#include "http/server.h"

struct ltn_serve_logs;

/* Adds the route and starts the thread. db is the path of the store's file (copied); budget_ns what
 * one search may take (0: 5 s). 0 or an error. */
int ltn_serve_logs_new(const char *db, uint64_t budget_ns, struct ltn_http_server *server,
                       struct ltn_serve_logs **ret) ltn_must_check;

/* Ends the search at work, refuses those that wait as retryable. After the server, before its loop.
 * NULL is ignored. */
void ltn_serve_logs_free(struct ltn_serve_logs *l);

#endif /* LTN_SERVE_LOGS_H */
