/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by series.c, series_index.c, series_walk.c and series_save.c only. */
#ifndef LTN_PROM_SERIES_INT_H
#define LTN_PROM_SERIES_INT_H

#include <pthread.h>

#include "base/map.h"
#include "prom/series.h"

#define LTN_SLOTS_PER_CHUNK 4096u
#define LTN_SLOTS_MAX       (1u << 24)
#define LTN_GROUPS_MAX      (1u << 24)

enum slot_flag {
    SLOT_USED = 1,
    SLOT_HAS = 2,   /* has a value to show */
    SLOT_ENDED = 4, /* its client ended it */
    SLOT_DELTA = 8, /* start_ns counts */
    SLOT_OVERFLOW = 16,
    SLOT_DIRTY = 32,  /* in the list of what changed */
    SLOT_NEW = 64,    /* not yet saved with its labels */
    SLOT_LIMBO = 128, /* freed, keys may still lead to it */
};

/* One series. A million of them is a common size: 48 bytes. */
struct slot {
    union {
        double value;
        void *state;
    };
    uint64_t time_ns;
    uint64_t start_ns; /* of the delta sum */
    char *labels;      /* behind the scope's */
    uint32_t group : 24;
    uint32_t flags : 8;
    uint32_t seen_s; /* monotonic */
    uint32_t hash;   /* of group and labels */
    uint32_t next;   /* ref in the group, or in the free list */
};

/* Labels that many series share. */
struct scope {
    size_t refs;
    char text[];
};

struct family {
    enum ltn_prom_type type;
    bool reserved, state;
    ltn_series_ref overflow;
    uint32_t index;
    size_t count; /* without the overflow series */
    struct group *groups;
    char *name, *unit, *help;
};

/* The series of one family in one scope. */
struct group {
    struct family *family;
    struct scope *scope;
    struct group *next;
    ltn_series_ref head;
    uint32_t index;
    uint32_t id; /* in blobs; never used again */
    uint64_t saved_round;
    size_t count;
};

struct raw_entry {
    uint64_t a;
    uint32_t b;
    ltn_series_ref ref; /* 0: free */
};

struct ltn_series {
    pthread_mutex_t lock;
    struct ltn_series_opts opts;
    struct ltn_series_stats stats;
    char conflict[256]; /* family of the newest conflict of types */
    const struct ltn_series_state_ops *state_ops;
    void *state_arg;
    uint64_t seed;
    /* names */
    struct ltn_map families; /* by name */
    struct ltn_map claims;   /* names that families keep for themselves -> family */
    struct ltn_map scopes;   /* by text */
    struct ltn_map groups;   /* by family and scope */
    struct family **family_list;
    uint32_t family_count; /* places in the list, with holes */
    struct group **group_list;
    uint32_t group_count, group_room; /* places in the list, with holes */
    uint32_t group_hole;              /* no hole before */
    uint32_t group_id;                /* last one given */
    /* slots */
    struct slot **chunks;
    uint32_t chunk_count;
    uint32_t slot_count; /* ever used */
    ltn_series_ref free_list;
    ltn_series_ref limbo; /* list of slots whose series went, not to be used again yet */
    bool unswept;         /* some of them still have keys */
    uint32_t cursors;
    size_t label_bytes;
    /* by group and labels */
    ltn_series_ref *index;
    uint32_t index_room, index_count;
    /* by key */
    struct raw_entry *raw;
    uint32_t raw_room, raw_count;
    /* saving */
    uint32_t *dirty, *saving;
    size_t dirty_count, dirty_room, saving_count, saving_room, saving_at;
    bool dirty_all;
    uint64_t round, round_begin;
    uint32_t old_at, old_at_begin;
    uint64_t defs, defs_begin; /* descriptions given away so far */
    /* loading */
    bool load_began;
    uint64_t load_defs;
    uint8_t *trusted; /* bit per slot; NULL while all are */
    struct ltn_map load_groups;
};

static inline struct slot *ltn_slot(const struct ltn_series *s, ltn_series_ref ref)
{
    uint32_t i = ref - 1;
    return &s->chunks[i / LTN_SLOTS_PER_CHUNK][i % LTN_SLOTS_PER_CHUNK];
}

static inline uint32_t ltn_seconds(uint64_t now_ns)
{
    return (uint32_t)(now_ns / 1000000000u);
}

static inline struct group *ltn_slot_group(const struct ltn_series *s, const struct slot *o)
{
    return s->group_list[o->group];
}

/* series_index.c */
uint32_t ltn_series_hash(const struct ltn_series *s, uint32_t group, const char *labels);
ltn_series_ref ltn_series_index_get(const struct ltn_series *s, uint32_t hash, uint32_t group,
                                    const char *labels);
int ltn_series_index_put(struct ltn_series *s, ltn_series_ref ref) ltn_must_check;
void ltn_series_index_del(struct ltn_series *s, ltn_series_ref ref);
void ltn_series_raw_put(struct ltn_series *s, struct ltn_series_key key, ltn_series_ref ref);
/* Forgets keys of freed slots and of overflow series, max of the table's places from *at on; true
 * while there are more. A table that grows meanwhile has none of freed slots any more. */
bool ltn_series_raw_sweep(struct ltn_series *s, uint32_t *at, uint32_t max);

/* series.c */
int ltn_series_get_family(struct ltn_series *s, const struct ltn_series_desc *d,
                          struct family **ret) ltn_must_check;
int ltn_series_get_group(struct ltn_series *s, struct family *f, const char *scope_labels,
                         struct group **ret) ltn_must_check;
/* Room for a slot of that number. */
int ltn_series_reach(struct ltn_series *s, ltn_series_ref ref) ltn_must_check;
/* Puts a slot that has labels, group and flags into group and index. */
int ltn_series_attach(struct ltn_series *s, ltn_series_ref ref) ltn_must_check;
/* Puts a slot without a series into the free list. */
void ltn_series_give_slot(struct ltn_series *s, ltn_series_ref ref);
/* Notes that the slot is to be saved. */
void ltn_series_mark(struct ltn_series *s, ltn_series_ref ref);

#endif /* LTN_PROM_SERIES_INT_H */
