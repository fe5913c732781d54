/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where one training step ends and the next begins, without knowing the framework: the calls to the
 * communicators and the waits that follow them repeat exactly, and the smallest distance at which
 * the sequence repeats is the step (as Greyhound, ATC'25, does with autocorrelation, but exact).
 * Pure; one thread at a time.
 */
#ifndef LTN_CAPTURE_STEPS_H
#define LTN_CAPTURE_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens kept: the longest step that can be told has a third of that. */
#define LTN_STEPS_TOKENS 1024

/* Token of a blocking call that may have waited for peers. */
#define LTN_STEPS_WAIT 1ULL

struct ltn_steps {
    uint64_t tokens[LTN_STEPS_TOKENS];      /* ring */
    uint32_t collectives[LTN_STEPS_TOKENS]; /* that each token stands for */
    uint64_t seen;
    uint32_t period; /* tokens per step, a launch of a graph is one; 0 = not known */
    uint32_t waits_per_step;
    uint32_t collectives_per_step;
};

/* Forgets everything. */
void ltn_steps_init(struct ltn_steps *s);

/* Adds the token of a collective: what makes it the same call in the next step. */
void ltn_steps_add_collective(struct ltn_steps *s, uint64_t comm_id, uint32_t op, uint64_t count,
                              uint32_t data_type);

/* Adds the launch of a graph in which that many collectives (at least one) are recorded. */
void ltn_steps_add_graph(struct ltn_steps *s, uint64_t signature, uint64_t collectives);

/* Adds a blocking call with a collective outstanding. */
void ltn_steps_add_wait(struct ltn_steps *s);

/* Looks for the period in the tokens so far; an older answer stays when the newest tokens do not
 * repeat (evaluation, logging). True when a period is known. O(tokens x period). */
bool ltn_steps_find(struct ltn_steps *s);

#endif /* LTN_CAPTURE_STEPS_H */
