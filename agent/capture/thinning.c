/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/thinning.h"

#include "base/attr.h"

#define LOOK_NS (500 * LTN_NS_PER_MS)
#define CALM_NS (3 * LTN_NS_PER_S)
#define STEP    10U
/* Less is thinned out only when what would come then is well below the limit. */
#define CALM_RATE (LTN_THINNING_RATE / 2)

bool ltn_thinning_update(struct ltn_thinning *t, uint64_t now_ns, uint64_t read_total,
                         uint64_t lost_total)
{
    if (t->one_in == 0) {
        *t = (struct ltn_thinning){
            .one_in = 1, .last_ns = now_ns, .last_read = read_total, .last_lost = lost_total};
        return true;
    }
    uint64_t passed_ns = now_ns - t->last_ns;
    if (passed_ns < LOOK_NS) {
        return false;
    }
    double rate = (double)(read_total - t->last_read) * 1e9 / (double)passed_ns;
    bool lost = lost_total != t->last_lost;
    t->last_ns = now_ns;
    t->last_read = read_total;
    t->last_lost = lost_total;
    if (lost || rate > LTN_THINNING_RATE) {
        t->one_in = t->one_in < LTN_THINNING_MAX ? t->one_in * STEP : LTN_THINNING_MAX;
        t->calm_since_ns = 0;
    } else if (t->one_in == 1 || rate * STEP > CALM_RATE) {
        t->calm_since_ns = 0;
    } else if (t->calm_since_ns == 0) {
        t->calm_since_ns = now_ns;
    } else if (now_ns - t->calm_since_ns >= CALM_NS) {
        t->one_in /= STEP;
        t->calm_since_ns = 0;
    }
    return true;
}
