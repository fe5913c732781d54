/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much records are thinned out, by how fast they come: one in 1, 10 or 100 is kept, with that
 * weight. More at once when they come too fast or are lost, less after calm. Pure.
 */
#ifndef LTN_CAPTURE_THINNING_H
#define LTN_CAPTURE_THINNING_H

#include <stdbool.h>
#include <stdint.h>

#define LTN_THINNING_MAX 100U
/* Records a second from which they are thinned out (more). */
#define LTN_THINNING_RATE 20000U

/* Zero at the start. */
struct ltn_thinning {
    uint32_t one_in; /* the outcome; 1 after the first update */
    uint64_t last_ns;
    uint64_t last_read;
    uint64_t last_lost;
    uint64_t calm_since_ns; /* 0 = it is not calm */
};

/* Takes the totals of records read, and of those lost for want of room. True when it looked, which
 * it does twice a second however often it is called. */
bool ltn_thinning_update(struct ltn_thinning *t, uint64_t now_ns, uint64_t read_total,
                         uint64_t lost_total);

#endif /* LTN_CAPTURE_THINNING_H */
