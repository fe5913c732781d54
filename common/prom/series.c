/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/series.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "prom/name.h"
#include "prom/series_int.h"

#define OVERFLOW_LABELS "otel_metric_overflow=\"true\""
#define HELP_BYTES      200
#define TAKE_SLICE      64u
#define EXPIRE_SLICE    1024u
#define LABEL_OVERHEAD  17u /* terminator and allocator, about */

/* ---- life ---- */

static void set_defaults(struct ltn_series_opts *o)
{
    if (o->max_families == 0)
        o->max_families = LTN_SERIES_FAMILIES;
    if (o->max_per_family == 0)
        o->max_per_family = 2000;
    if (o->max_series == 0)
        o->max_series = 200000;
    if (o->max_series > LTN_SLOTS_MAX - o->max_families - 1)
        o->max_series = LTN_SLOTS_MAX - o->max_families - 1;
    if (o->expire_ns == 0)
        o->expire_ns = 300 * LTN_NS_PER_S;
}

struct ltn_series *ltn_series_new(const struct ltn_series_opts *opts)
{
    struct ltn_series *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    if (opts != NULL)
        s->opts = *opts;
    set_defaults(&s->opts);
    if (getrandom(&s->seed, sizeof(s->seed), GRND_NONBLOCK) != (ssize_t)sizeof(s->seed))
        s->seed = ltn_now_mono_ns() ^ (uint64_t)(uintptr_t)s;
    (void)pthread_mutex_init(&s->lock, NULL);
    ltn_map_init(&s->families, s->opts.max_families);
    ltn_map_init(&s->claims, s->opts.max_families * LTN_PROM_CLAIMS);
    ltn_map_init(&s->scopes, s->opts.max_series);
    ltn_map_init(&s->groups, LTN_GROUPS_MAX);
    ltn_map_init(&s->load_groups, LTN_GROUPS_MAX);
    s->round = 1;
    return s;
}

static void free_family(void *p)
{
    struct family *f = p;
    free(f->name);
    free(f->unit);
    free(f->help);
    free(f);
}

static void free_state(const struct ltn_series *s, struct slot *o)
{
    if (ltn_slot_group(s, o)->family->state && o->state != NULL && s->state_ops != NULL)
        s->state_ops->free(s->state_arg, o->state);
    o->state = NULL;
}

void ltn_series_free(struct ltn_series *s)
{
    if (s == NULL)
        return;
    for (ltn_series_ref r = 1; r <= s->slot_count; r++) {
        struct slot *o = ltn_slot(s, r);
        if ((o->flags & SLOT_USED) == 0)
            continue;
        free_state(s, o);
        free(o->labels);
    }
    for (uint32_t i = 0; i < s->chunk_count; i++)
        free(s->chunks[i]);
    ltn_map_done(&s->groups, free);
    ltn_map_done(&s->scopes, free);
    ltn_map_done(&s->claims, NULL);
    ltn_map_done(&s->families, free_family);
    ltn_map_done(&s->load_groups, NULL);
    free(s->chunks);
    free(s->group_list);
    free(s->family_list);
    free(s->index);
    free(s->raw);
    free(s->dirty);
    free(s->saving);
    free(s->trusted);
    if (s->state_ops != NULL && s->state_ops->done != NULL)
        s->state_ops->done(s->state_arg);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

void ltn_series_lock(struct ltn_series *s)
{
    (void)pthread_mutex_lock(&s->lock);
}

void ltn_series_unlock(struct ltn_series *s)
{
    (void)pthread_mutex_unlock(&s->lock);
}

void ltn_series_set_state_ops(struct ltn_series *s, const struct ltn_series_state_ops *ops,
                              void *arg)
{
    s->state_ops = ops;
    s->state_arg = arg;
}

void *ltn_series_state_arg(const struct ltn_series *s)
{
    return s->state_arg;
}

bool ltn_series_is_overflow(const struct ltn_series *s, ltn_series_ref ref)
{
    return (ltn_slot(s, ref)->flags & SLOT_OVERFLOW) != 0;
}

/* ---- families ---- */

/* A place in the list: one that is free, or a new one at the end. */
static int list_family(struct ltn_series *s, struct family *f)
{
    uint32_t i = 0;
    while (i < s->family_count && s->family_list[i] != NULL)
        i++;
    if (i == s->family_count) {
        struct family **list =
            realloc(s->family_list, ((size_t)s->family_count + 1) * sizeof(struct family *));
        if (list == NULL)
            return -ENOMEM;
        s->family_list = list;
        s->family_count++;
    }
    s->family_list[i] = f;
    f->index = i;
    return 0;
}

static void drop_claims(struct ltn_series *s, const struct family *f)
{
    char names[LTN_PROM_CLAIMS][LTN_PROM_CLAIM_BYTES];
    size_t n = ltn_prom_claims(f->name, f->type, names);
    for (size_t i = 0; i < n; i++)
        if (ltn_map_get_str(&s->claims, names[i]) == f)
            (void)ltn_map_del(&s->claims, names[i], strlen(names[i]));
}

/* Keeps the names of a family's samples for it. 0; -EINVAL: one of them is another's. */
static int take_claims(struct ltn_series *s, struct family *f)
{
    char names[LTN_PROM_CLAIMS][LTN_PROM_CLAIM_BYTES];
    size_t n = ltn_prom_claims(f->name, f->type, names);
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        if (ltn_map_get_str(&s->claims, names[i]) != NULL)
            return -EINVAL;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = ltn_map_put_str(&s->claims, names[i], f);
    if (rc != 0)
        drop_claims(s, f);
    return rc;
}

static int add_family(struct ltn_series *s, const struct ltn_series_desc *d, struct family **ret)
{
    char help[HELP_BYTES] = "";
    struct family *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return -ENOMEM;
    if (d->help != NULL)
        ltn_text_clean(help, sizeof(help), d->help, strlen(d->help));
    f->type = d->type;
    f->state = d->state;
    f->name = strdup(d->family);
    f->unit = strdup(d->unit != NULL ? d->unit : "");
    f->help = strdup(help);
    int rc = f->name == NULL || f->unit == NULL || f->help == NULL ? -ENOMEM : take_claims(s, f);
    if (rc != 0) {
        free_family(f);
        return rc;
    }
    rc = list_family(s, f);
    if (rc == 0) {
        rc = ltn_map_put_str(&s->families, d->family, f);
        if (rc != 0)
            s->family_list[f->index] = NULL;
    }
    if (rc != 0) {
        drop_claims(s, f);
        free_family(f);
        return rc;
    }
    s->stats.families++;
    *ret = f;
    return 0;
}

static void note_conflict(struct ltn_series *s, const char *family)
{
    s->stats.type_conflicts++;
    (void)ltn_copy_str(s->conflict, sizeof(s->conflict), family);
}

void ltn_series_last_conflict(struct ltn_series *s, char *ret, size_t size)
{
    ltn_series_lock(s);
    (void)ltn_copy_str(ret, size, s->conflict);
    ltn_series_unlock(s);
}

int ltn_series_get_family(struct ltn_series *s, const struct ltn_series_desc *d,
                          struct family **ret)
{
    struct family *f = ltn_map_get_str(&s->families, d->family);
    int rc = f == NULL ? add_family(s, d, &f) : 0;
    if (rc != 0 && rc != -EINVAL) {
        s->stats.refused++;
        return LTN_ERR_COUNT;
    }
    if (rc == -EINVAL) {
        note_conflict(s, d->family);
        return rc;
    }
    if (f->reserved || f->type != d->type || f->state != d->state) {
        note_conflict(s, d->family);
        return -EINVAL;
    }
    *ret = f;
    return 0;
}

int ltn_series_reserve(struct ltn_series *s, const char *name, enum ltn_prom_type type)
{
    const struct ltn_series_desc d = {.family = name, .type = type};
    ltn_series_lock(s);
    struct family *f = ltn_map_get_str(&s->families, name);
    int rc = f == NULL ? add_family(s, &d, &f) : 0;
    if (rc == 0)
        f->reserved = true;
    ltn_series_unlock(s);
    return rc;
}

/* ---- groups ---- */

static struct scope *get_scope(struct ltn_series *s, const char *text)
{
    struct scope *o = ltn_map_get_str(&s->scopes, text);
    if (o != NULL)
        return o;
    size_t n = strlen(text);
    o = calloc(1, sizeof(*o) + n + 1);
    if (o == NULL)
        return NULL;
    memcpy(o->text, text, n + 1);
    if (ltn_map_put_str(&s->scopes, text, o) != 0) {
        free(o);
        return NULL;
    }
    return o;
}

static void drop_scope(struct ltn_series *s, struct scope *o)
{
    if (o->refs > 0)
        return;
    (void)ltn_map_del(&s->scopes, o->text, strlen(o->text));
    free(o);
}

static int list_group(struct ltn_series *s, struct group *g)
{
    uint32_t i = s->group_hole;
    while (i < s->group_count && s->group_list[i] != NULL)
        i++;
    if (i == s->group_room) {
        uint32_t room = s->group_room < 64 ? 64 : s->group_room * 2;
        struct group **list =
            room <= LTN_GROUPS_MAX ? realloc(s->group_list, room * sizeof(struct group *)) : NULL;
        if (list == NULL)
            return -ENOMEM;
        s->group_list = list;
        s->group_room = room;
    }
    s->group_list[i] = g;
    s->group_count += i == s->group_count ? 1 : 0;
    s->group_hole = i + 1;
    g->index = i;
    g->id = ++s->group_id;
    return 0;
}

/* Family and scope of a group, as key of the map. */
struct pair {
    const struct family *family;
    const struct scope *scope;
};

static int put_group(struct ltn_series *s, struct group *g)
{
    const struct pair key = {g->family, g->scope};
    int rc = ltn_map_put(&s->groups, &key, sizeof(key), g);
    if (rc != 0)
        return rc;
    rc = list_group(s, g);
    if (rc != 0)
        (void)ltn_map_del(&s->groups, &key, sizeof(key));
    return rc;
}

int ltn_series_get_group(struct ltn_series *s, struct family *f, const char *scope_labels,
                         struct group **ret)
{
    struct scope *scope = get_scope(s, scope_labels != NULL ? scope_labels : "");
    if (scope == NULL)
        return -ENOMEM;
    const struct pair key = {f, scope};
    struct group *g = ltn_map_get(&s->groups, &key, sizeof(key));
    if (g != NULL) {
        *ret = g;
        return 0;
    }
    g = calloc(1, sizeof(*g));
    if (g != NULL)
        *g = (struct group){.family = f, .scope = scope};
    if (g == NULL || put_group(s, g) != 0) {
        drop_scope(s, scope);
        free(g);
        return -ENOMEM;
    }
    scope->refs++;
    g->next = f->groups;
    f->groups = g;
    *ret = g;
    return 0;
}

/* ---- slots ---- */

int ltn_series_reach(struct ltn_series *s, ltn_series_ref ref)
{
    while (ref > s->chunk_count * LTN_SLOTS_PER_CHUNK) {
        struct slot **chunks = realloc(s->chunks, ((size_t)s->chunk_count + 1) * sizeof(*chunks));
        if (chunks == NULL)
            return -ENOMEM;
        s->chunks = chunks;
        chunks[s->chunk_count] = calloc(LTN_SLOTS_PER_CHUNK, sizeof(struct slot));
        if (chunks[s->chunk_count] == NULL)
            return -ENOMEM;
        s->chunk_count++;
    }
    if (ref > s->slot_count)
        s->slot_count = ref;
    return 0;
}

static ltn_series_ref new_slot(struct ltn_series *s)
{
    ltn_series_ref r = s->free_list;
    if (r != 0) {
        s->free_list = ltn_slot(s, r)->next;
        return r;
    }
    if (s->slot_count >= LTN_SLOTS_MAX - 1 || ltn_series_reach(s, s->slot_count + 1) != 0)
        return 0;
    return s->slot_count;
}

void ltn_series_give_slot(struct ltn_series *s, ltn_series_ref r)
{
    ltn_slot(s, r)->next = s->free_list;
    s->free_list = r;
}

void ltn_series_mark(struct ltn_series *s, ltn_series_ref ref)
{
    struct slot *o = ltn_slot(s, ref);
    if ((o->flags & SLOT_DIRTY) != 0)
        return;
    if (s->dirty_count == s->dirty_room) {
        size_t room = s->dirty_room < 1024 ? 1024 : s->dirty_room + s->dirty_room / 2;
        uint32_t *list = realloc(s->dirty, room * sizeof(*list));
        if (list == NULL) {
            s->dirty_all = true;
            return;
        }
        s->dirty = list;
        s->dirty_room = room;
    }
    s->dirty[s->dirty_count++] = ref;
    o->flags |= SLOT_DIRTY;
}

int ltn_series_attach(struct ltn_series *s, ltn_series_ref ref)
{
    struct slot *o = ltn_slot(s, ref);
    struct group *g = ltn_slot_group(s, o);
    o->hash = ltn_series_hash(s, g->id, o->labels);
    if (ltn_series_index_put(s, ref) != 0)
        return -ENOMEM;
    o->next = g->head;
    g->head = ref;
    g->count++;
    if ((o->flags & SLOT_OVERFLOW) != 0)
        g->family->overflow = ref;
    else
        g->family->count++;
    s->stats.series++;
    s->label_bytes += strlen(o->labels) + LABEL_OVERHEAD;
    return 0;
}

static int make(struct ltn_series *s, struct group *g, const char *labels, unsigned flags,
                ltn_series_ref *ret)
{
    ltn_series_ref r = new_slot(s);
    if (r == 0)
        return -ENOMEM;
    struct slot *o = ltn_slot(s, r);
    unsigned kept = o->flags & SLOT_DIRTY;
    *o = (struct slot){.labels = strdup(labels),
                       .group = g->index & 0xffffff,
                       .flags = (uint8_t)(kept | flags | SLOT_USED | SLOT_NEW)};
    if (o->labels == NULL || ltn_series_attach(s, r) != 0) {
        free(o->labels);
        *o = (struct slot){.flags = (uint8_t)kept};
        ltn_series_give_slot(s, r);
        return -ENOMEM;
    }
    ltn_series_mark(s, r);
    *ret = r;
    return 0;
}

/* Takes a series that is in no list any more out of the rest; its slot stays in limbo. */
static void unmake(struct ltn_series *s, ltn_series_ref ref)
{
    struct slot *o = ltn_slot(s, ref);
    struct group *g = ltn_slot_group(s, o);
    ltn_series_index_del(s, ref);
    free_state(s, o);
    s->label_bytes -= strlen(o->labels) + LABEL_OVERHEAD;
    free(o->labels);
    o->labels = NULL;
    g->count--;
    if ((o->flags & SLOT_OVERFLOW) != 0)
        g->family->overflow = 0;
    else
        g->family->count--;
    s->stats.series--;
    o->next = s->limbo;
    s->limbo = ref;
    s->unswept = true;
    o->flags = (uint8_t)((o->flags & SLOT_DIRTY) | SLOT_LIMBO);
    ltn_series_mark(s, ref);
}

/* ---- finding ---- */

static int find_or_make(struct ltn_series *s, struct group *g, const char *labels, unsigned flags,
                        ltn_series_ref *ret)
{
    *ret = ltn_series_index_get(s, ltn_series_hash(s, g->id, labels), g->index, labels);
    return *ret != 0 ? 0 : make(s, g, labels, flags, ret);
}

static int overflow_series(struct ltn_series *s, struct family *f, ltn_series_ref *ret)
{
    struct group *g;
    if (f->overflow == 0) {
        int rc = ltn_series_get_group(s, f, "", &g);
        if (rc == 0)
            rc = find_or_make(s, g, OVERFLOW_LABELS, SLOT_OVERFLOW, ret);
        if (rc != 0)
            return rc;
        if (f->overflow == 0) { /* one that a client had made */
            ltn_slot(s, *ret)->flags |= SLOT_OVERFLOW;
            f->overflow = *ret;
            f->count--;
        }
    }
    *ret = f->overflow;
    return 0;
}

static int resolve(struct ltn_series *s, const struct ltn_series_desc *d, ltn_series_ref *ret)
{
    const char *labels = d->labels != NULL ? d->labels : "";
    struct family *f;
    struct group *g;
    int rc = ltn_series_get_family(s, d, &f);
    if (rc == 0)
        rc = ltn_series_get_group(s, f, d->scope_labels, &g);
    if (rc != 0)
        return rc;
    if (f->count < s->opts.max_per_family && s->stats.series < s->opts.max_series)
        return find_or_make(s, g, labels, 0, ret);
    *ret = ltn_series_index_get(s, ltn_series_hash(s, g->id, labels), g->index, labels);
    return *ret != 0 ? 0 : overflow_series(s, f, ret);
}

int ltn_series_resolve(struct ltn_series *s, const struct ltn_series_desc *d,
                       struct ltn_series_key key, uint64_t now_ns, ltn_series_ref *ret)
{
    s->stats.new_keys++;
    int rc = resolve(s, d, ret);
    if (rc == -ENOMEM)
        s->stats.refused++;
    if (rc != 0)
        return rc;
    struct slot *o = ltn_slot(s, *ret);
    if ((o->flags & SLOT_HAS) == 0)
        o->seen_s = ltn_seconds(now_ns); /* a new one; the others when a value is taken */
    ltn_series_raw_put(s, key, *ret);
    return 0;
}

/* ---- values ---- */

/* One series stands for many: sums of what is added, the highest of counters, else the last. */
static void take_overflow(struct ltn_series *s, struct slot *o, const struct ltn_series_sample *p)
{
    bool counter = (p->flags & LTN_SERIES_MONOTONIC) != 0;
    s->stats.overflowed++;
    if ((p->flags & LTN_SERIES_DELTA) != 0)
        o->value += p->value;
    else if (!(counter && o->value > p->value) || (o->flags & SLOT_HAS) == 0)
        o->value = p->value;
}

static void take_delta(struct ltn_series *s, struct slot *o, const struct ltn_series_sample *p)
{
    bool first = (o->flags & SLOT_HAS) == 0;
    bool gap = !first && p->start_ns != 0 && o->time_ns != 0 && p->start_ns > o->time_ns;
    if (first || gap) {
        o->value = p->value;
        o->start_ns = p->start_ns != 0 ? p->start_ns : p->time_ns;
        s->stats.delta_gaps += gap ? 1 : 0;
    } else {
        o->value += p->value;
        if (p->start_ns != 0 && p->start_ns < o->time_ns)
            s->stats.delta_overlaps++;
    }
    o->flags |= SLOT_DELTA;
}

static void take_one(struct ltn_series *s, const struct ltn_series_sample *p, uint32_t now_s)
{
    struct slot *o = ltn_slot(s, p->ref);
    s->stats.points++;
    bool overflow = (o->flags & SLOT_OVERFLOW) != 0;
    bool older = p->time_ns != 0 && p->time_ns < o->time_ns && !overflow;
    /* An older one does not keep the series: after one value from a clock that was ahead it could
     * never be set again. */
    if (!older)
        o->seen_s = now_s;
    if (older || (p->time_ns != 0 && p->time_ns == o->time_ns && !overflow)) {
        s->stats.late++;
        return;
    }
    if ((p->flags & LTN_SERIES_END) != 0) {
        if (overflow || (o->flags & SLOT_HAS) == 0)
            return;
        o->flags = (uint8_t)((o->flags & ~(unsigned)SLOT_HAS) | SLOT_ENDED);
        s->stats.ended++;
    } else {
        if (overflow)
            take_overflow(s, o, p);
        else if ((p->flags & LTN_SERIES_DELTA) != 0)
            take_delta(s, o, p);
        else
            o->value = p->value;
        o->flags = (uint8_t)((o->flags | SLOT_HAS) & ~(unsigned)SLOT_ENDED);
    }
    if (p->time_ns > o->time_ns)
        o->time_ns = p->time_ns;
    ltn_series_mark(s, p->ref);
}

int ltn_series_take(struct ltn_series *s, const struct ltn_series_sample *samples, size_t n,
                    uint64_t now_ns)
{
    uint32_t now_s = ltn_seconds(now_ns);
    int rc = 0;
    for (size_t i = 0; i < n;) {
        size_t end = n - i > TAKE_SLICE ? i + TAKE_SLICE : n;
        ltn_series_lock(s);
        for (size_t k = i; k < end; k++)
            __builtin_prefetch(ltn_slot(s, samples[k].ref), 1);
        for (; i < end; i++) {
            if ((ltn_slot(s, samples[i].ref)->flags & SLOT_USED) != 0)
                take_one(s, &samples[i], now_s);
            else
                rc = LTN_ERR_BUSY;
        }
        ltn_series_unlock(s);
    }
    return rc;
}

int ltn_series_set(struct ltn_series *s, const struct ltn_series_point *p, uint64_t now_ns)
{
    struct ltn_series_sample v = {
        .value = p->value, .time_ns = p->time_ns, .start_ns = p->start_ns, .flags = p->flags};
    ltn_series_lock(s);
    int rc = ltn_series_resolve(s, &p->desc, (struct ltn_series_key){0, 0}, now_ns, &v.ref);
    if (rc == 0)
        take_one(s, &v, ltn_seconds(now_ns));
    ltn_series_unlock(s);
    return rc;
}

/* ---- states ---- */

void **ltn_series_state(struct ltn_series *s, ltn_series_ref ref)
{
    struct slot *o = ltn_slot(s, ref);
    if ((o->flags & SLOT_USED) == 0)
        return NULL;
    return ltn_slot_group(s, o)->family->state ? &o->state : NULL;
}

uint64_t ltn_series_time(const struct ltn_series *s, ltn_series_ref ref)
{
    return ltn_slot(s, ref)->time_ns;
}

void ltn_series_touch(struct ltn_series *s, ltn_series_ref ref, uint64_t time_ns, bool ended,
                      uint64_t now_ns)
{
    struct slot *o = ltn_slot(s, ref);
    s->stats.points++;
    s->stats.overflowed += (o->flags & SLOT_OVERFLOW) != 0 ? 1 : 0;
    s->stats.ended += ended && (o->flags & SLOT_HAS) != 0 ? 1 : 0;
    o->seen_s = ltn_seconds(now_ns);
    o->flags &= (uint8_t) ~(unsigned)(SLOT_HAS | SLOT_ENDED);
    o->flags |= ended ? SLOT_ENDED : SLOT_HAS;
    if (time_ns > o->time_ns)
        o->time_ns = time_ns;
    ltn_series_mark(s, ref);
}

/* ---- expiry ---- */

/* True while there are more. */
static bool expire_slice(struct ltn_series *s, uint32_t *group, uint32_t limit_s)
{
    uint32_t looked = 0;
    for (; *group < s->group_count && looked < EXPIRE_SLICE; (*group)++) {
        struct group *g = s->group_list[*group];
        ltn_series_ref *link = g != NULL ? &g->head : NULL;
        while (link != NULL && *link != 0) {
            ltn_series_ref r = *link;
            struct slot *o = ltn_slot(s, r);
            looked++;
            if (o->seen_s >= limit_s && (o->flags & SLOT_ENDED) == 0) {
                link = &o->next;
                continue;
            }
            *link = o->next;
            unmake(s, r);
        }
    }
    return *group < s->group_count;
}

static void drop_group(struct ltn_series *s, struct group *g)
{
    const struct pair key = {g->family, g->scope};
    struct group **link = &g->family->groups;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    s->group_list[g->index] = NULL;
    if (g->index < s->group_hole)
        s->group_hole = g->index;
    (void)ltn_map_del(&s->groups, &key, sizeof(key));
    g->scope->refs--;
    drop_scope(s, g->scope);
    free(g);
}

static void drop_empty(struct ltn_series *s)
{
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->group_list[i] != NULL && s->group_list[i]->count == 0)
            drop_group(s, s->group_list[i]);
    for (uint32_t i = 0; i < s->family_count; i++) {
        struct family *f = s->family_list[i];
        if (f == NULL || f->reserved || f->groups != NULL)
            continue;
        s->family_list[i] = NULL;
        drop_claims(s, f);
        (void)ltn_map_del(&s->families, f->name, strlen(f->name));
        free_family(f);
        s->stats.families--;
    }
}

/* Slots that went with the expiry before become free. True while there are more. */
static bool leave_limbo(struct ltn_series *s)
{
    for (uint32_t n = 0; s->limbo != 0 && n < EXPIRE_SLICE; n++) {
        ltn_series_ref r = s->limbo;
        struct slot *o = ltn_slot(s, r);
        s->limbo = o->next;
        o->flags &= (uint8_t) ~(unsigned)SLOT_LIMBO;
        ltn_series_give_slot(s, r);
    }
    return s->limbo != 0;
}

/* Lets others have the lock for a moment. */
static void breathe(struct ltn_series *s)
{
    ltn_series_unlock(s);
    ltn_series_lock(s);
}

void ltn_series_expire(struct ltn_series *s, uint64_t now_ns)
{
    uint32_t now_s = ltn_seconds(now_ns), keep_s = ltn_seconds(s->opts.expire_ns);
    uint32_t limit_s = now_s > keep_s ? now_s - keep_s : 0, group = 0, at = 0;
    ltn_series_lock(s);
    while (leave_limbo(s))
        breathe(s);
    while (s->cursors == 0 && expire_slice(s, &group, limit_s))
        breathe(s);
    while (s->unswept && ltn_series_raw_sweep(s, &at, EXPIRE_SLICE))
        breathe(s);
    s->unswept = false;
    if (s->cursors == 0 && s->limbo != 0)
        drop_empty(s);
    ltn_series_unlock(s);
}

void ltn_series_stats(struct ltn_series *s, struct ltn_series_stats *ret)
{
    ltn_series_lock(s);
    *ret = s->stats;
    ret->bytes = (size_t)s->chunk_count * LTN_SLOTS_PER_CHUNK * sizeof(struct slot) +
                 s->label_bytes + s->raw_room * sizeof(*s->raw) +
                 s->index_room * sizeof(*s->index) +
                 (s->dirty_room + s->saving_room) * sizeof(*s->dirty);
    ltn_series_unlock(s);
}
