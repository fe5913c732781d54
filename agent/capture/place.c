/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/place.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/clock.h"

#define LONG_NS  LTN_NS_PER_S
#define ASKS_MAX 64 /* in one window: asking takes up to some milliseconds */

/* Since when the thread has been inside what it is inside of; 0 = it is in nothing. */
static uint64_t since_of(int in_flight, uint32_t tid)
{
    struct ltn_in_flight v;
    return bpf_map_lookup_elem(in_flight, &tid, &v) == 0 ? v.since_ns : 0;
}

static void find(const struct ltn_cap_proc *p, struct ltn_stuck_call *call,
                 const struct ltn_stack_sink *stacks, int in_flight)
{
    char place[LTN_PLACE_BYTES] = "";
    uint64_t since = since_of(in_flight, call->tid);
    if (since == 0 || ltn_now_mono_ns() - since < LONG_NS) {
        return;
    }
    stacks->place(stacks->ctx, p->tgid, call->tid, place, sizeof(place));
    if (since_of(in_flight, call->tid) == since) {
        memcpy(call->place, place, sizeof(place));
    }
}

void ltn_places_find(struct ltn_procs *t, const struct ltn_stack_sink *stacks, int in_flight)
{
    size_t pos = 0;
    unsigned asks = 0;
    struct ltn_cap_proc *p;
    while (stacks->place != NULL && (p = ltn_procs_next(t, &pos)) != NULL) {
        for (size_t i = 0; i < p->stuck_count && asks < ASKS_MAX; i++, asks++) {
            find(p, &p->stuck[i], stacks, in_flight);
        }
    }
}
