/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of OTLP metrics and logs that lanterne speaks, as plain views: what a writer is given
 * and what a reader hands to its callbacks. Strings and arrays are borrowed, never owned; a view
 * given to a callback dies when the callback returns.
 *
 * Text from the wire may hold any byte, NUL included. Where it is not valid UTF-8 the view says so
 * (bad_utf8); the rule is that the consumer cleans it when it interns it (ltn_text_clean: control
 * characters and invalid sequences become '?', a NUL ends the text), so that the same bytes always
 * give the same name.
 */
#ifndef LTN_OTLP_MODEL_H
#define LTN_OTLP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Paths and names of the services. */
#define LTN_OTLP_GRPC_METRICS "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
#define LTN_OTLP_GRPC_LOGS    "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
#define LTN_OTLP_HTTP_METRICS "/v1/metrics"
#define LTN_OTLP_HTTP_LOGS    "/v1/logs"

enum ltn_otlp_signal { LTN_OTLP_METRICS, LTN_OTLP_LOGS, LTN_OTLP_TRACES };

/* Flag of a data point: the series has ended here, the point carries no value. */
#define LTN_OTLP_NO_RECORDED_VALUE 1u

struct ltn_otlp_str {
    const char *p; /* not terminated; may be NULL when n is 0 */
    size_t n;
};

enum ltn_otlp_value_type {
    LTN_OTLP_NONE = 0, /* no value set */
    LTN_OTLP_STRING,
    LTN_OTLP_BOOL,
    LTN_OTLP_INT,
    LTN_OTLP_DOUBLE,
    LTN_OTLP_ARRAY, /* str: undecoded ArrayValue, checked for form and depth; if the message came in
                       several pieces, the last one */
    LTN_OTLP_KVLIST, /* str: undecoded KeyValueList, likewise */
    LTN_OTLP_BYTES,  /* str */
};

struct ltn_otlp_value {
    enum ltn_otlp_value_type type;
    bool bad_utf8; /* STRING that is not valid UTF-8 */
    union {
        struct ltn_otlp_str str;
        bool b;
        int64_t i;
        double d;
    };
};

struct ltn_otlp_attr {
    struct ltn_otlp_str key;
    struct ltn_otlp_value value;
    bool key_bad_utf8;
};

struct ltn_otlp_attrs {
    const struct ltn_otlp_attr *items;
    size_t n;
};

/* Constructors for writers; s, key and value are borrowed. A NULL string is empty. */
static inline struct ltn_otlp_str ltn_otlp_str(const char *s)
{
    return (struct ltn_otlp_str){s, s != NULL ? strlen(s) : 0};
}

static inline struct ltn_otlp_attr ltn_otlp_attr_str(const char *key, const char *value)
{
    return (struct ltn_otlp_attr){.key = ltn_otlp_str(key),
                                  .value = {.type = LTN_OTLP_STRING, .str = ltn_otlp_str(value)}};
}

static inline struct ltn_otlp_attr ltn_otlp_attr_int(const char *key, int64_t value)
{
    return (struct ltn_otlp_attr){.key = ltn_otlp_str(key),
                                  .value = {.type = LTN_OTLP_INT, .i = value}};
}

static inline struct ltn_otlp_attr ltn_otlp_attr_double(const char *key, double value)
{
    return (struct ltn_otlp_attr){.key = ltn_otlp_str(key),
                                  .value = {.type = LTN_OTLP_DOUBLE, .d = value}};
}

static inline struct ltn_otlp_attr ltn_otlp_attr_bool(const char *key, bool value)
{
    return (struct ltn_otlp_attr){.key = ltn_otlp_str(key),
                                  .value = {.type = LTN_OTLP_BOOL, .b = value}};
}

static inline bool ltn_otlp_str_eq(struct ltn_otlp_str a, const char *s)
{
    size_t n = strlen(s);
    return a.n == n && (n == 0 || memcmp(a.p, s, n) == 0);
}

/* The first attribute of that key, or NULL. Thread-safe. */
const struct ltn_otlp_attr *ltn_otlp_find(struct ltn_otlp_attrs attrs, const char *key);

/* The value under the key in the wanted form. False when there is none or its type does not fit;
 * *ret is then unchanged. _str takes strings only; _i64 integers, booleans, doubles that are whole
 * numbers, and decimal strings; _f64 doubles, integers and decimal strings; _bool booleans, "true"
 * and "false". */
bool ltn_otlp_get_str(struct ltn_otlp_attrs attrs, const char *key, struct ltn_otlp_str *ret);
bool ltn_otlp_get_i64(struct ltn_otlp_attrs attrs, const char *key, int64_t *ret);
bool ltn_otlp_get_f64(struct ltn_otlp_attrs attrs, const char *key, double *ret);
bool ltn_otlp_get_bool(struct ltn_otlp_attrs attrs, const char *key, bool *ret);

/* Text of a value into dst (size bytes, always terminated, cleaned and cut as by ltn_text_clean):
 * strings as they are, numbers in decimal, "true"/"false", "[…]" "{…}" for the others. Returns dst.
 */
char *ltn_otlp_value_text(const struct ltn_otlp_value *v, char *dst, size_t size);

enum ltn_otlp_kind {
    LTN_OTLP_GAUGE = 1,
    LTN_OTLP_SUM,
    LTN_OTLP_HISTOGRAM,
    LTN_OTLP_EXP_HISTOGRAM,
    LTN_OTLP_SUMMARY,
};

/* Numbers as on the wire. */
enum ltn_otlp_temporality {
    LTN_OTLP_TEMPORALITY_UNSPECIFIED = 0,
    LTN_OTLP_DELTA = 1,
    LTN_OTLP_CUMULATIVE = 2,
};

/* Where records stand: their resource and scope. The indexes count from 0 within one request and
 * change when the group changes, so that a consumer may look a resource up once. */
struct ltn_otlp_group {
    struct ltn_otlp_attrs resource;
    struct ltn_otlp_str resource_raw; /* Resource as it came; p NULL: not in one piece, or none */
    struct ltn_otlp_str scope_raw;    /* InstrumentationScope likewise */
    struct ltn_otlp_str resource_schema_url;
    struct ltn_otlp_str scope_name;
    struct ltn_otlp_str scope_version;
    struct ltn_otlp_attrs scope_attrs;
    struct ltn_otlp_str scope_schema_url;
    uint32_t resource_index;
    uint32_t scope_index;
};

struct ltn_otlp_metric {
    struct ltn_otlp_str name; /* a reader rejects points of a metric without a name */
    struct ltn_otlp_str unit;
    struct ltn_otlp_str description;
    enum ltn_otlp_kind kind;
    enum ltn_otlp_temporality temporality; /* not for gauges */
    bool monotonic;                        /* sums only */
    bool bad_utf8;                         /* name, unit or description */
    uint32_t metric_index;                 /* read: counts from 0 within a request */
};

/* Exemplars of a point beyond these are skipped. */
#define LTN_OTLP_EXEMPLARS_MAX 16

/* A measurement that stands for others, with where it came from. */
struct ltn_otlp_exemplar {
    uint64_t time_ns;
    double value;
    struct ltn_otlp_str trace_id; /* 16 bytes or empty */
    struct ltn_otlp_str span_id;  /* 8 bytes or empty */
    struct ltn_otlp_attrs attrs;  /* those that the series does not have */
};

/* What every data point has. Times are ns since 1970. */
struct ltn_otlp_point {
    struct ltn_otlp_attrs attrs;
    const struct ltn_otlp_exemplar *exemplars; /* of numbers and histograms; may be NULL when 0 */
    size_t exemplar_n;
    /* The attributes as they came, tags and lengths included: the same bytes mean the same
     * attributes. p NULL: not to be had in one piece. Only of numbers. */
    struct ltn_otlp_str raw;
    uint64_t start_ns; /* 0 unknown */
    uint64_t time_ns;
    uint32_t flags; /* LTN_OTLP_NO_RECORDED_VALUE */
};

struct ltn_otlp_number {
    struct ltn_otlp_point point;
    enum ltn_otlp_value_type type; /* INT, DOUBLE, or NONE */
    union {
        int64_t i;
        double d;
    };
};

/* The number as a double; 0 when there is none. */
static inline double ltn_otlp_number_f64(const struct ltn_otlp_number *n)
{
    if (n->type == LTN_OTLP_INT) {
        return (double)n->i;
    }
    return n->type == LTN_OTLP_DOUBLE ? n->d : 0.0;
}

struct ltn_otlp_histogram {
    struct ltn_otlp_point point;
    uint64_t count;
    double sum, min, max; /* valid where has_ says so, else 0 */
    bool has_sum, has_min, has_max;
    const uint64_t *bucket_counts; /* bucket_n is bound_n + 1, or both are 0 (a reader checks) */
    const double *bounds;
    size_t bucket_n;
    size_t bound_n;
};

struct ltn_otlp_buckets {
    int32_t offset; /* counts[i] is of (base^(offset+i), base^(offset+i+1)], base = 2^(2^-scale) */
    const uint64_t *counts;
    size_t n;
};

/* Scales that a reader lets pass. */
#define LTN_OTLP_SCALE_MIN (-10)
#define LTN_OTLP_SCALE_MAX 20

struct ltn_otlp_exp_histogram {
    struct ltn_otlp_point point;
    uint64_t count;
    double sum, min, max; /* valid where has_ says so, else 0 */
    bool has_sum, has_min, has_max;
    int32_t scale;
    uint64_t zero_count;
    double zero_threshold;
    struct ltn_otlp_buckets positive;
    struct ltn_otlp_buckets negative;
};

struct ltn_otlp_quantile {
    double quantile; /* 0 to 1; a reader checks */
    double value;
};

/* Quantiles that somebody computed; deprecated, but some clients know nothing else. */
struct ltn_otlp_summary {
    struct ltn_otlp_point point;
    uint64_t count;
    double sum;
    const struct ltn_otlp_quantile *quantiles; /* in any order */
    size_t n;
};

/* Severity numbers in use here (the lowest of each range). */
enum ltn_otlp_severity {
    LTN_OTLP_SEVERITY_UNSPECIFIED = 0,
    LTN_OTLP_TRACE = 1,
    LTN_OTLP_DEBUG = 5,
    LTN_OTLP_INFO = 9,
    LTN_OTLP_WARN = 13,
    LTN_OTLP_ERROR = 17,
    LTN_OTLP_FATAL = 21,
};

struct ltn_otlp_log {
    uint64_t time_ns; /* 0 unknown */
    uint64_t observed_ns;
    int32_t severity; /* enum ltn_otlp_severity, or anything between */
    uint32_t flags;
    struct ltn_otlp_str severity_text;
    struct ltn_otlp_str event_name;
    struct ltn_otlp_str trace_id; /* 16 bytes or empty */
    struct ltn_otlp_str span_id;  /* 8 bytes or empty */
    struct ltn_otlp_value body;
    struct ltn_otlp_attrs attrs;
    bool bad_utf8; /* severity_text or event_name */
};

#endif /* LTN_OTLP_MODEL_H */
