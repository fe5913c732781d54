/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/reader.h"

#include <stdlib.h>

#include "base/err.h"
#include "otlp/read_int.h"

const char *ltn_otlp_reject_str(enum ltn_otlp_reject why)
{
    switch (why) {
#define LTN_OTLP_REJECT_TEXT(name, text)                                                           \
    case LTN_OTLP_REJECT_##name:                                                                   \
        return text;
        LTN_OTLP_REJECT_TABLE(LTN_OTLP_REJECT_TEXT)
#undef LTN_OTLP_REJECT_TEXT
    case LTN_OTLP_REJECT_KINDS:
        break;
    }
    return "unknown reason";
}

static bool limits_ok(const struct ltn_otlp_limits *l)
{
    return l->max_depth > 0 && l->max_depth <= LTN_OTLP_DEPTH_CEILING && l->max_records > 0 &&
           l->max_groups > 0 && l->max_attrs > 0 && l->max_attrs <= LTN_OTLP_ATTRS_CEILING &&
           l->max_buckets > 0 && l->max_buckets <= LTN_OTLP_BUCKETS_CEILING;
}

static bool set_init(struct ltn_otlp_attr_set *set, uint32_t max)
{
    set->items = calloc(max, sizeof(*set->items));
    set->max = max;
    set->reject = -1;
    return set->items != NULL;
}

struct ltn_otlp_reader *ltn_otlp_reader_new(const struct ltn_otlp_limits *limits)
{
    static const struct ltn_otlp_limits defaults = LTN_OTLP_LIMITS_DEFAULT;
    const struct ltn_otlp_limits *l = limits != NULL ? limits : &defaults;
    struct ltn_otlp_reader *r = limits_ok(l) ? calloc(1, sizeof(*r)) : NULL;
    if (r == NULL) {
        return NULL;
    }
    r->limits = *l;
    r->positive = calloc(l->max_buckets, sizeof(*r->positive));
    r->negative = calloc(l->max_buckets, sizeof(*r->negative));
    r->bounds = calloc(l->max_buckets, sizeof(*r->bounds));
    bool sets = set_init(&r->resource, l->max_attrs) && set_init(&r->scope, l->max_attrs) &&
                set_init(&r->point, l->max_attrs);
    if (!sets || r->positive == NULL || r->negative == NULL || r->bounds == NULL) {
        ltn_otlp_reader_free(r);
        return NULL;
    }
    return r;
}

void ltn_otlp_reader_free(struct ltn_otlp_reader *r)
{
    if (r == NULL) {
        return;
    }
    free(r->resource.items);
    free(r->scope.items);
    free(r->point.items);
    free(r->positive);
    free(r->negative);
    free(r->bounds);
    free(r);
}

int ltn_otlp_group_reject(const struct ltn_otlp_reader *r)
{
    return r->resource.reject >= 0 ? r->resource.reject : r->scope.reject;
}

int ltn_otlp_count_group(struct ltn_otlp_reader *r)
{
    if (r->counts->groups >= r->limits.max_groups) {
        return LTN_ERR_COUNT;
    }
    r->counts->groups++;
    return 0;
}

int ltn_otlp_count_record(struct ltn_otlp_reader *r)
{
    if (r->record_n >= r->limits.max_records) {
        return LTN_ERR_COUNT;
    }
    r->record_n++;
    return 0;
}

void ltn_otlp_count_reject(struct ltn_otlp_reader *r, int why, struct ltn_otlp_str metric)
{
    if (r->counts->rejected == 0) {
        r->counts->metric = metric;
    }
    r->counts->rejected++;
    r->counts->by_reason[why]++;
}

/* One piece of a Resource, or of an InstrumentationScope. */
static int read_resource(struct ltn_otlp_reader *r, struct ltn_pb_cur c)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.number == 1 && f.type == LTN_PB_LEN) {
            rc = ltn_otlp_attr_read(&c, &f, &r->resource);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return rc;
}

static int read_scope(struct ltn_otlp_reader *r, struct ltn_pb_cur c)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.type != LTN_PB_LEN) {
            continue;
        }
        if (f.number == 1) {
            r->group.scope_name = ltn_otlp_field_str(&f);
        } else if (f.number == 2) {
            r->group.scope_version = ltn_otlp_field_str(&f);
        } else if (f.number == 3) {
            rc = ltn_otlp_attr_read(&c, &f, &r->scope);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return rc;
}

typedef int piece_fn(struct ltn_otlp_reader *r, struct ltn_pb_cur c);

/* What a group says of itself besides its members. */
struct heading {
    piece_fn *piece;
    struct ltn_otlp_str *raw, *schema_url;
};

static void note_raw(struct ltn_otlp_str *raw, const struct ltn_pb_field *f, size_t *pieces)
{
    bool only = (*pieces)++ == 0;
    *raw = (struct ltn_otlp_str){only ? (const char *)f->data : NULL, only ? (size_t)f->value : 0};
}

/* First pass over a resource or scope group: what describes it, wherever it stands. Field 1 is
 * Resource or InstrumentationScope, field 3 the schema address. */
static int read_heading(struct ltn_otlp_reader *r, struct ltn_pb_cur c, const struct heading *h)
{
    struct ltn_pb_field f;
    size_t pieces = 0;
    int rc;
    *h->raw = (struct ltn_otlp_str){NULL, 0};
    *h->schema_url = (struct ltn_otlp_str){"", 0};
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.type != LTN_PB_LEN) {
            continue;
        }
        if (f.number == 1) {
            struct ltn_pb_cur sub;
            rc = ltn_pb_enter(&c, &f, &sub);
            if (rc < 0 || (rc = h->piece(r, sub)) < 0) {
                return rc;
            }
            note_raw(h->raw, &f, &pieces);
        } else if (f.number == 3) {
            *h->schema_url = ltn_otlp_field_str(&f);
        }
    }
    return rc;
}

static int read_scope_group(struct ltn_otlp_reader *r, struct ltn_pb_cur c, ltn_otlp_leaf_fn *leaf,
                            void *arg)
{
    struct ltn_otlp_group *g = &r->group;
    struct ltn_pb_field f;
    int rc = ltn_otlp_count_group(r);
    if (rc < 0) {
        return rc;
    }
    g->scope_index = r->scope_n++;
    g->scope_name = g->scope_version = (struct ltn_otlp_str){"", 0};
    ltn_otlp_attrs_reset(&r->scope);
    rc = read_heading(r, c, &(struct heading){read_scope, &g->scope_raw, &g->scope_schema_url});
    if (rc < 0) {
        return rc;
    }
    g->scope_attrs = ltn_otlp_attrs_view(&r->scope);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != 2 || f.type != LTN_PB_LEN) {
            continue;
        }
        rc = ltn_pb_enter(&c, &f, &sub);
        if (rc < 0 || (rc = leaf(r, sub, arg)) < 0) {
            return rc;
        }
    }
    return rc;
}

static int read_resource_group(struct ltn_otlp_reader *r, struct ltn_pb_cur c,
                               ltn_otlp_leaf_fn *leaf, void *arg)
{
    struct ltn_otlp_group *g = &r->group;
    struct ltn_pb_field f;
    int rc = ltn_otlp_count_group(r);
    if (rc < 0) {
        return rc;
    }
    g->resource_index = r->resource_n++;
    ltn_otlp_attrs_reset(&r->resource);
    rc = read_heading(r, c,
                      &(struct heading){read_resource, &g->resource_raw, &g->resource_schema_url});
    if (rc < 0) {
        return rc;
    }
    g->resource = ltn_otlp_attrs_view(&r->resource);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != 2 || f.type != LTN_PB_LEN) {
            continue;
        }
        rc = ltn_pb_enter(&c, &f, &sub);
        if (rc < 0 || (rc = read_scope_group(r, sub, leaf, arg)) < 0) {
            return rc;
        }
    }
    return rc;
}

int ltn_otlp_walk(struct ltn_otlp_reader *r, const void *data, size_t n, ltn_otlp_leaf_fn *leaf,
                  void *arg)
{
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    int rc;
    r->group = (struct ltn_otlp_group){.resource_index = 0};
    r->resource_n = r->scope_n = r->metric_n = r->record_n = 0;
    ltn_pb_init(&c, data, n, r->limits.max_depth);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != 1 || f.type != LTN_PB_LEN) {
            continue;
        }
        rc = ltn_pb_enter(&c, &f, &sub);
        if (rc < 0 || (rc = read_resource_group(r, sub, leaf, arg)) < 0) {
            return rc;
        }
    }
    return rc;
}
