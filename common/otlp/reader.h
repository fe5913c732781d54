/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the metrics and the logs reader share: limits, counters and the scratch memory that makes
 * decoding free of allocation.
 */
#ifndef LTN_OTLP_READER_H
#define LTN_OTLP_READER_H

#include <stdint.h>

#include "base/attr.h"
#include "otlp/model.h"

/* Ceilings per request. The first three refuse the request (LTN_ERR_DEPTH, LTN_ERR_COUNT), the
 * others reject the point or record that exceeds them and count it. */
struct ltn_otlp_limits {
    uint32_t max_depth;   /* nested messages from the request down, nested values included */
    uint32_t max_records; /* data points or log records */
    uint32_t max_groups;  /* resources, scopes and metrics together */
    uint32_t max_attrs;   /* attributes of one resource, scope, point or record; at most 1024 */
    uint32_t max_buckets; /* buckets of one histogram point, both signs; at most 1048576 */
};

#define LTN_OTLP_ATTRS_USUAL   128
#define LTN_OTLP_BUCKETS_USUAL 16384
#define LTN_OTLP_LIMITS_DEFAULT                                                                    \
    {                                                                                              \
        .max_depth = 32, .max_records = 1000000, .max_groups = 1000000,                            \
        .max_attrs = LTN_OTLP_ATTRS_USUAL, .max_buckets = LTN_OTLP_BUCKETS_USUAL                   \
    }

/* Why a point or record was rejected while its request was accepted. */
#define LTN_OTLP_REJECT_TABLE(X)                                                                   \
    X(ATTRS, "more than " LTN_STRING(LTN_OTLP_ATTRS_USUAL) " attributes")                          \
    X(STRINDEX, "attribute refers to a string table")                                              \
    X(NAME, "metric without a name")                                                               \
    X(KIND, "metric kind not supported")                                                           \
    X(BUCKETS, "more than " LTN_STRING(LTN_OTLP_BUCKETS_USUAL) " buckets")                         \
    X(RANGE, "histogram bounds, scale or offset out of range")

enum ltn_otlp_reject {
#define LTN_OTLP_REJECT_ENUM(name, text) LTN_OTLP_REJECT_##name,
    LTN_OTLP_REJECT_TABLE(LTN_OTLP_REJECT_ENUM)
#undef LTN_OTLP_REJECT_ENUM
        LTN_OTLP_REJECT_KINDS
};

/* Static text of a reason. Thread-safe. */
const char *ltn_otlp_reject_str(enum ltn_otlp_reject why);

struct ltn_otlp_counts {
    uint64_t records;  /* points or records handed to callbacks */
    uint64_t rejected; /* sum of by_reason; for partial_success */
    uint64_t by_reason[LTN_OTLP_REJECT_KINDS];
    struct ltn_otlp_str metric; /* of the first point rejected; in the request's bytes */
    uint64_t groups;            /* resources, scopes and metrics seen */
};

struct ltn_otlp_reader;

/* Scratch memory for one thread, sized by the limits (NULL for the default; about 200 KiB). NULL
 * when out of memory or a limit is 0 or beyond its range. */
struct ltn_otlp_reader *ltn_otlp_reader_new(const struct ltn_otlp_limits *limits) ltn_must_check;

/* NULL is ignored. */
void ltn_otlp_reader_free(struct ltn_otlp_reader *r);

#endif /* LTN_OTLP_READER_H */
