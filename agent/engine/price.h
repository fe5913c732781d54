/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's side of the governor: measures the price at the start, lets it decide once a second,
 * applies what it says and reports it. Main thread. */
#ifndef LTN_ENGINE_PRICE_H
#define LTN_ENGINE_PRICE_H

#include <stdbool.h>

#include "capture/aggregate.h"
#include "capture/drain.h"
#include "governor/governor.h"
#include "governor/meter.h"
#include "probe/price.h"

struct ltn_price {
    struct ltn_meter *meter;
    struct ltn_governor governor;
    struct ltn_probe_price price;
    struct ltn_price_health health;
    uint64_t next_ns; /* of the next decision */
    uint64_t maps_ns; /* when the size of the maps is looked at again */
    bool told_exhausted;
    uint64_t quiet_ns; /* when it was exhausted last */
};

/* Nothing may be attached yet. budget 0, or records_wanted: all is measured and reported, nothing
 * turned down. 0 or -ENOMEM. Free with ltn_price_done. */
int ltn_price_init(struct ltn_price *p, struct ltn_probes *probes, double budget,
                   bool records_wanted) ltn_must_check;
void ltn_price_done(struct ltn_price *p);

/* To be called every second; more often does no harm. Logs what changes. */
void ltn_price_tick(struct ltn_price *p, struct ltn_probes *probes, struct ltn_drain *drain,
                    struct ltn_aggregate *aggregate);

#endif /* LTN_ENGINE_PRICE_H */
