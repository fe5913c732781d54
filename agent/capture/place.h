/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out where the threads stand that are inside a call for long. */
#ifndef LTN_CAPTURE_PLACE_H
#define LTN_CAPTURE_PLACE_H

#include "capture/aggregate.h"
#include "capture/procs.h"

/* Fills in `place` of the calls in the table that have lasted a second or more, by asking
 * stacks->place; what came of it is kept only if the thread was inside the same call before and
 * after. in_flight: the kernel's map. */
void ltn_places_find(struct ltn_procs *t, const struct ltn_stack_sink *stacks, int in_flight);

#endif /* LTN_CAPTURE_PLACE_H */
