/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers queries of the collector: a thread runs one statement after another on the record and
 * makes encoded messages (pages, then the end) of the rows. Few may wait on either side: beyond
 * that queries are refused and the statement waits. Used by control.c.
 */
#ifndef LTN_PUSH_ANSWER_H
#define LTN_PUSH_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "control/message.h"

struct ltn_answerer;

/* An encoded AgentMessage; free with free(). */
struct ltn_answer {
    struct ltn_answer *next;
    uint64_t query_id;
    uint64_t generation;
    bool end; /* else a page */
    bool failed;
    size_t n;
    uint8_t bytes[];
};

/* wake_fd (an eventfd, borrowed) is written to whenever an answer is ready. 0 or -ENOMEM. */
int ltn_answerer_new(const char *db_path, int wake_fd, struct ltn_answerer **ret) ltn_must_check;
/* Starts the thread. 0 or -errno. */
int ltn_answerer_start(struct ltn_answerer *a) ltn_must_check;
/* Cancels what runs, ends the thread, frees. NULL is ignored. */
void ltn_answerer_free(struct ltn_answerer *a);

/* Takes a query. 0; LTN_ERR_BUSY: too many wait; -ENOMEM. Any thread, as the others below. */
int ltn_answerer_ask(struct ltn_answerer *a, const struct ltn_control_query *q) ltn_must_check;
/* Takes a query back; the end of a running one is still sent. True when there was one. */
bool ltn_answerer_cancel(struct ltn_answerer *a, uint64_t id);
/* Takes all back and forgets their answers: the stream is gone. Returns how many queries. */
size_t ltn_answerer_cancel_all(struct ltn_answerer *a);
/* The next message to be sent, NULL when there is none. The caller frees it. */
struct ltn_answer *ltn_answerer_next(struct ltn_answerer *a);
/* True when nothing waits, runs or is to be sent. */
bool ltn_answerer_idle(struct ltn_answerer *a);
/* Answers forgotten so far because their query was taken back. */
uint64_t ltn_answerer_dropped(struct ltn_answerer *a);

#endif /* LTN_PUSH_ANSWER_H */
