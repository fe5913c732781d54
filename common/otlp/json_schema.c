/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_schema.h"

#include "base/attr.h"

#define FIELD(text, num, what)                                                                     \
    {                                                                                              \
        .name = (text), .name_len = sizeof(text) - 1, .number = (num), .form = LTN_JSON_##what     \
    }
#define LIST(text, num, what)                                                                      \
    {                                                                                              \
        .name = (text), .name_len = sizeof(text) - 1, .number = (num), .form = LTN_JSON_##what,    \
        .repeated = true                                                                           \
    }
#define SUB(text, num, msg)                                                                        \
    {                                                                                              \
        .name = (text), .name_len = sizeof(text) - 1, .number = (num), .form = LTN_JSON_MESSAGE,   \
        .message = &(msg)                                                                          \
    }
#define SUBS(text, num, msg)                                                                       \
    {                                                                                              \
        .name = (text), .name_len = sizeof(text) - 1, .number = (num), .form = LTN_JSON_MESSAGE,   \
        .repeated = true, .message = &(msg)                                                        \
    }
#define SMALL(list)                                                                                \
    {                                                                                              \
        .fields = (list), .n = LTN_ARRAY_SIZE(list), .large = false                                \
    }
#define LARGE(list)                                                                                \
    {                                                                                              \
        .fields = (list), .n = LTN_ARRAY_SIZE(list), .large = true                                 \
    }

/* ---- values and attributes ---- */

static const struct ltn_json_message any_value, array_value, key_value, kvlist;

static const struct ltn_json_field any_value_fields[] = {
    FIELD("stringValue", 1, TEXT),     FIELD("intValue", 3, INT64),
    FIELD("boolValue", 2, BOOL),       FIELD("doubleValue", 4, DOUBLE),
    SUB("arrayValue", 5, array_value), SUB("kvlistValue", 6, kvlist),
    FIELD("bytesValue", 7, BASE64),    FIELD("stringValueStrindex", 8, INT32)};
static const struct ltn_json_message any_value = SMALL(any_value_fields);

static const struct ltn_json_field array_value_fields[] = {SUBS("values", 1, any_value)};
static const struct ltn_json_message array_value = SMALL(array_value_fields);

static const struct ltn_json_field kvlist_fields[] = {SUBS("values", 1, key_value)};
static const struct ltn_json_message kvlist = SMALL(kvlist_fields);

static const struct ltn_json_field key_value_fields[] = {
    FIELD("key", 1, TEXT), SUB("value", 2, any_value), FIELD("keyStrindex", 3, INT32)};
static const struct ltn_json_message key_value = SMALL(key_value_fields);

static const struct ltn_json_field resource_fields[] = {SUBS("attributes", 1, key_value),
                                                        FIELD("droppedAttributesCount", 2, UINT32)};
static const struct ltn_json_message resource = SMALL(resource_fields);

static const struct ltn_json_field scope_fields[] = {
    FIELD("name", 1, TEXT), FIELD("version", 2, TEXT), SUBS("attributes", 3, key_value),
    FIELD("droppedAttributesCount", 4, UINT32)};
static const struct ltn_json_message scope = SMALL(scope_fields);

/* ---- metrics ---- */

static const struct ltn_json_field exemplar_fields[] = {SUBS("filteredAttributes", 7, key_value),
                                                        FIELD("timeUnixNano", 2, FIXED64),
                                                        FIELD("asDouble", 3, DOUBLE),
                                                        FIELD("asInt", 6, SFIXED64),
                                                        FIELD("spanId", 4, HEX),
                                                        FIELD("traceId", 5, HEX)};
static const struct ltn_json_message exemplar = SMALL(exemplar_fields);

static const struct ltn_json_field number_fields[] = {
    SUBS("attributes", 7, key_value),  FIELD("startTimeUnixNano", 2, FIXED64),
    FIELD("timeUnixNano", 3, FIXED64), FIELD("asDouble", 4, DOUBLE),
    FIELD("asInt", 6, SFIXED64),       FIELD("flags", 8, UINT32),
    SUBS("exemplars", 5, exemplar)};
static const struct ltn_json_message number = SMALL(number_fields);

static const struct ltn_json_field histogram_point_fields[] = {
    SUBS("attributes", 9, key_value),  FIELD("startTimeUnixNano", 2, FIXED64),
    FIELD("timeUnixNano", 3, FIXED64), FIELD("count", 4, FIXED64),
    FIELD("sum", 5, DOUBLE),           LIST("bucketCounts", 6, FIXED64),
    LIST("explicitBounds", 7, DOUBLE), FIELD("flags", 10, UINT32),
    FIELD("min", 11, DOUBLE),          FIELD("max", 12, DOUBLE),
    SUBS("exemplars", 8, exemplar)};
static const struct ltn_json_message histogram_point = SMALL(histogram_point_fields);

static const struct ltn_json_field buckets_fields[] = {FIELD("offset", 1, SINT32),
                                                       LIST("bucketCounts", 2, UINT64)};
static const struct ltn_json_message buckets = SMALL(buckets_fields);

static const struct ltn_json_field exp_point_fields[] = {SUBS("attributes", 1, key_value),
                                                         FIELD("startTimeUnixNano", 2, FIXED64),
                                                         FIELD("timeUnixNano", 3, FIXED64),
                                                         FIELD("count", 4, FIXED64),
                                                         FIELD("sum", 5, DOUBLE),
                                                         FIELD("scale", 6, SINT32),
                                                         FIELD("zeroCount", 7, FIXED64),
                                                         SUB("positive", 8, buckets),
                                                         SUB("negative", 9, buckets),
                                                         FIELD("flags", 10, UINT32),
                                                         FIELD("min", 12, DOUBLE),
                                                         FIELD("max", 13, DOUBLE),
                                                         FIELD("zeroThreshold", 14, DOUBLE),
                                                         SUBS("exemplars", 11, exemplar)};
static const struct ltn_json_message exp_point = SMALL(exp_point_fields);

static const struct ltn_json_field quantile_fields[] = {FIELD("quantile", 1, DOUBLE),
                                                        FIELD("value", 2, DOUBLE)};
static const struct ltn_json_message quantile = SMALL(quantile_fields);

static const struct ltn_json_field summary_point_fields[] = {
    SUBS("attributes", 7, key_value),  FIELD("startTimeUnixNano", 2, FIXED64),
    FIELD("timeUnixNano", 3, FIXED64), FIELD("count", 4, FIXED64),
    FIELD("sum", 5, DOUBLE),           SUBS("quantileValues", 6, quantile),
    FIELD("flags", 8, UINT32)};
static const struct ltn_json_message summary_point = SMALL(summary_point_fields);

static const struct ltn_json_field gauge_fields[] = {SUBS("dataPoints", 1, number)};
static const struct ltn_json_message gauge = LARGE(gauge_fields);

static const struct ltn_json_field sum_fields[] = {SUBS("dataPoints", 1, number),
                                                   FIELD("aggregationTemporality", 2, ENUM),
                                                   FIELD("isMonotonic", 3, BOOL)};
static const struct ltn_json_message sum = LARGE(sum_fields);

static const struct ltn_json_field histogram_fields[] = {SUBS("dataPoints", 1, histogram_point),
                                                         FIELD("aggregationTemporality", 2, ENUM)};
static const struct ltn_json_message histogram = LARGE(histogram_fields);

static const struct ltn_json_field exp_fields[] = {SUBS("dataPoints", 1, exp_point),
                                                   FIELD("aggregationTemporality", 2, ENUM)};
static const struct ltn_json_message exp_histogram = LARGE(exp_fields);

static const struct ltn_json_field summary_fields[] = {SUBS("dataPoints", 1, summary_point)};
static const struct ltn_json_message summary = LARGE(summary_fields);

static const struct ltn_json_field metric_fields[] = {
    FIELD("name", 1, TEXT),
    FIELD("description", 2, TEXT),
    FIELD("unit", 3, TEXT),
    SUB("gauge", 5, gauge),
    SUB("sum", 7, sum),
    SUB("histogram", 9, histogram),
    SUB("exponentialHistogram", 10, exp_histogram),
    SUB("summary", 11, summary),
    SUBS("metadata", 12, key_value)};
static const struct ltn_json_message metric = LARGE(metric_fields);

static const struct ltn_json_field scope_metrics_fields[] = {
    SUB("scope", 1, scope), SUBS("metrics", 2, metric), FIELD("schemaUrl", 3, TEXT)};
static const struct ltn_json_message scope_metrics = LARGE(scope_metrics_fields);

static const struct ltn_json_field resource_metrics_fields[] = {
    SUB("resource", 1, resource), SUBS("scopeMetrics", 2, scope_metrics),
    FIELD("schemaUrl", 3, TEXT)};
static const struct ltn_json_message resource_metrics = LARGE(resource_metrics_fields);

static const struct ltn_json_field metrics_fields[] = {
    SUBS("resourceMetrics", 1, resource_metrics)};
static const struct ltn_json_message metrics = LARGE(metrics_fields);

/* ---- logs ---- */

static const struct ltn_json_field log_fields[] = {
    FIELD("timeUnixNano", 1, FIXED64), FIELD("observedTimeUnixNano", 11, FIXED64),
    FIELD("severityNumber", 2, ENUM),  FIELD("severityText", 3, TEXT),
    FIELD("eventName", 12, TEXT),      SUB("body", 5, any_value),
    SUBS("attributes", 6, key_value),  FIELD("droppedAttributesCount", 7, UINT32),
    FIELD("flags", 8, FIXED32),        FIELD("traceId", 9, HEX),
    FIELD("spanId", 10, HEX)};
static const struct ltn_json_message log_record = SMALL(log_fields);

static const struct ltn_json_field scope_logs_fields[] = {
    SUB("scope", 1, scope), SUBS("logRecords", 2, log_record), FIELD("schemaUrl", 3, TEXT)};
static const struct ltn_json_message scope_logs = LARGE(scope_logs_fields);

static const struct ltn_json_field resource_logs_fields[] = {
    SUB("resource", 1, resource), SUBS("scopeLogs", 2, scope_logs), FIELD("schemaUrl", 3, TEXT)};
static const struct ltn_json_message resource_logs = LARGE(resource_logs_fields);

static const struct ltn_json_field logs_fields[] = {SUBS("resourceLogs", 1, resource_logs)};
static const struct ltn_json_message logs = LARGE(logs_fields);

/* ---- traces: spans are counted, so all their members count as unknown ---- */

static const struct ltn_json_message span = {.fields = NULL};

static const struct ltn_json_field scope_spans_fields[] = {
    SUB("scope", 1, scope), SUBS("spans", 2, span), FIELD("schemaUrl", 3, TEXT)};
static const struct ltn_json_message scope_spans = LARGE(scope_spans_fields);

static const struct ltn_json_field resource_spans_fields[] = {
    SUB("resource", 1, resource), SUBS("scopeSpans", 2, scope_spans), FIELD("schemaUrl", 3, TEXT)};
static const struct ltn_json_message resource_spans = LARGE(resource_spans_fields);

static const struct ltn_json_field traces_fields[] = {SUBS("resourceSpans", 1, resource_spans)};
static const struct ltn_json_message traces = LARGE(traces_fields);

const struct ltn_json_message *ltn_json_request(enum ltn_otlp_signal signal)
{
    switch (signal) {
    case LTN_OTLP_METRICS:
        return &metrics;
    case LTN_OTLP_LOGS:
        return &logs;
    case LTN_OTLP_TRACES:
        break;
    }
    return &traces;
}
