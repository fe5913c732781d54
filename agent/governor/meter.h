/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what the governor decides by: how often each process calls what, from the kernel's
 * counters; the agent's own CPU time; the time of its kernel programs, for a second in a minute.
 * Cheap when little happens: the counters of single processes are only read when all calls together
 * could be too many for one. One thread.
 */
#ifndef LTN_GOVERNOR_METER_H
#define LTN_GOVERNOR_METER_H

#include <stdint.h>

#include "base/attr.h"
#include "governor/governor.h"
#include "probe/price.h"
#include "probe/probes.h"

struct ltn_meter;

/* probes is borrowed and must outlive it; budget as in struct ltn_governor_conf. NULL when memory
 * is out. */
struct ltn_meter *ltn_meter_new(const struct ltn_probes *probes,
                                const struct ltn_probe_price *price, double budget) ltn_must_check;
void ltn_meter_free(struct ltn_meter *m);

/* Measures since the last call; *ret_pid is the dearest process, 0 when none was looked at. */
void ltn_meter_read(struct ltn_meter *m, uint64_t now_ns, struct ltn_governor_input *ret,
                    uint32_t *ret_pid);

/* ---- parts that do no I/O, for tests ---- */

/* Calls a second of one process. */
struct ltn_call_rates {
    double launches;     /* launches, asynchronous copies, memsets: outermost ones */
    double entries_only; /* functions without a return probe */
    double others;
    double nested;  /* made inside another traced call */
    double stepped; /* of all these: through a probe that the kernel must step through */
};

/* Share of its time that such a process loses at a level. */
double ltn_meter_share(const struct ltn_call_rates *r, const struct ltn_probe_price *price,
                       enum ltn_detail level);

#endif /* LTN_GOVERNOR_METER_H */
