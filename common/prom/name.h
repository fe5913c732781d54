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

/* Metric name with unit suffix and, for counters, "_total"; unit suffix alone into ret_unit (""
 * when none; may be NULL). False when nothing valid remains or it does not fit. */
bool ltn_prom_metric_name(struct ltn_prom_text name, struct ltn_prom_text unit,
                          enum ltn_prom_type type, char ret[LTN_PROM_NAME_BYTES],
                          char ret_unit[LTN_PROM_NAME_BYTES]);

/* Label name: invalid characters become '_' and collapse, a leading digit gets "key_". The names
 * that mean something here or to Prometheus (le, quantile, job, instance, __*) get "exported_".
 * False for an empty key. */
bool ltn_prom_label_name(struct ltn_prom_text key, char ret[LTN_PROM_NAME_BYTES]);

#endif /* LTN_PROM_NAME_H */
