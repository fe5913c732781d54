/* SPDX-License-Identifier: Apache-2.0 */
/* Between histograms of common/stats and exponential histogram points. */
#ifndef LTN_OTLP_HIST_POINT_H
#define LTN_OTLP_HIST_POINT_H

#include "base/attr.h"
#include "otlp/model.h"
#include "stats/exphist.h"

/* Fills everything of *p but p->point. The counts are borrowed from h: h must not change before the
 * point is written. */
void ltn_otlp_from_exphist(const struct ltn_exphist *h, struct ltn_otlp_exp_histogram *p);

/* Adds a point to h. -EINVAL when the point has negative buckets (h is for durations) or its bounds
 * leave the range of double; h is unchanged then. */
int ltn_otlp_into_exphist(const struct ltn_otlp_exp_histogram *p,
                          struct ltn_exphist *h) ltn_must_check;

#endif /* LTN_OTLP_HIST_POINT_H */
