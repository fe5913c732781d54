/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of points and scopes as Prometheus labels: names by ltn_prom_label_name, strings as
 * they are (cleaned), bytes in base64, all other values as JSON; several keys of one label joined
 * with ';' in the order of the keys. Thread-safe: scratch memory is per thread.
 */
#ifndef LTN_INGEST_LABELS_H
#define LTN_INGEST_LABELS_H

#include "base/buf.h"
#include "otlp/model.h"

#define LTN_LABELS_VALUE_BYTES 512 /* longer values are cut; with the terminator */
#define LTN_LABELS_MAX         128 /* attributes beyond them are left out */

/* Appends a point's attributes behind what is in out, sorted by name. Process and thread ids are
 * left out, and what would be taken for a label of the scope. agent: "node" is the agent's own.
 * Errors stick in out. */
void ltn_labels_put_point(struct ltn_buf *out, struct ltn_otlp_attrs attrs, bool agent);

/* Appends otel_scope_name, _version, _schema_url (what there is) and the scope's attributes as
 * otel_scope_KEY; those that are called like the first three are left out. */
void ltn_labels_put_scope(struct ltn_buf *out, const struct ltn_otlp_group *g);

/* Labels of an exemplar: trace_id and span_id in hex, then its attributes as long as names and
 * values together stay within the LTN_PROM_EXEMPLAR_RUNES code points that OpenMetrics allows. */
void ltn_labels_put_exemplar(struct ltn_buf *out, const struct ltn_otlp_exemplar *e);

#endif /* LTN_INGEST_LABELS_H */
