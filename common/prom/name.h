/* SPDX-License-Identifier: Apache-2.0 */
/* From OTLP names to Prometheus names, as the OpenTelemetry specification maps them. Thread-safe.
 */
#ifndef LTN_PROM_NAME_H
#define LTN_PROM_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "prom/expo.h"

#define LTN_PROM_NAME_BYTES 200

/* Text that need not be terminated. */
struct ltn_prom_text {
    const char *p;
    size_t n;
};

/* Metric name: runs of other characters than letters, digits and ':' become one '_', none at the
 * ends; a leading digit gets '_' before it; the unit in words behind it (not when the name ends in
 * it); "_ratio" for gauges of unit 1 (a non-monotonic sum is none: name it as UNKNOWN); "_total"
 * behind counters, and not twice. The unit's words alone into ret_unit ("" when there are none;
 * may be NULL). False when nothing valid remains or it does not fit. */
bool ltn_prom_metric_name(struct ltn_prom_text name, struct ltn_prom_text unit,
                          enum ltn_prom_type type, char ret[LTN_PROM_NAME_BYTES],
                          char ret_unit[LTN_PROM_NAME_BYTES]);

/* Label name: invalid characters become '_' and collapse, a leading digit gets "key_". The names
 * that mean something here or to Prometheus (le, quantile, job, instance, __*) get "exported_".
 * False for an empty key. */
bool ltn_prom_label_name(struct ltn_prom_text key, char ret[LTN_PROM_NAME_BYTES]);

/* All names that a family keeps others from: in either format, no sample of another family may be
 * called like one of its own, and no family like another. */
#define LTN_PROM_CLAIMS      5
#define LTN_PROM_CLAIM_BYTES (LTN_PROM_NAME_BYTES + 16)

/* Those of a family (full name) into ret; how many. */
size_t ltn_prom_claims(const char *family, enum ltn_prom_type type,
                       char ret[LTN_PROM_CLAIMS][LTN_PROM_CLAIM_BYTES]);

#endif /* LTN_PROM_NAME_H */
