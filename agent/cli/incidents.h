/* SPDX-License-Identifier: Apache-2.0 */
/* Incidents on their way from windows and calls to the record. Runs where the sink's functions run;
 * one thread. */
#ifndef LTN_CLI_INCIDENTS_H
#define LTN_CLI_INCIDENTS_H

#include "causal/causal.h"
#include "cli/options.h"
#include "record/record.h"

struct ltn_incidents {
    struct ltn_causal *causal; /* NULL when switched off */
    struct ltn_record *record; /* borrowed; NULL: not recorded */
    void *ctx;
    /* NULL, or told of every change before it is recorded. */
    void (*change)(void *ctx, const struct ltn_causal_change *change);
    uint64_t lost; /* changes that the record did not take */
};

/* Makes the analysis as the options say; the other fields are the caller's, set before. 0 or
 * -ENOMEM. */
int ltn_incidents_init(struct ltn_incidents *i, const struct ltn_agent_options *o) ltn_must_check;

/* Closes what is open (when windows came at all) and frees. Harmless when it is zeroed. */
void ltn_incidents_done(struct ltn_incidents *i);

/* To be called with what the sink gets, before it is handed on. */
void ltn_incidents_window(struct ltn_incidents *i, const struct ltn_window *w);
void ltn_incidents_calls(struct ltn_incidents *i, const struct ltn_call_batch *batch);

/* Appends a change as one JSON object and a newline; the evidence is in the record. */
void ltn_incident_json(struct ltn_buf *out, const struct ltn_causal_change *c, const char *node);

#endif /* LTN_CLI_INCIDENTS_H */
