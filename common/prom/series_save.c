/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Series as blobs and back. A blob is a heading and records, little endian, numbers as varints:
 *
 *   group   1, id, type, has states, name, unit, help, scope labels
 *   series  2, slot, flags, group's id, seconds since it was seen, labels, time, value
 *   value   3, slot, flags, time, value
 *   gone    4, slot
 *
 * Slots of series and values, and times, are given less those of the record before. A value is
 * start (of delta sums, as time less start) and 8 bytes or, when it is a whole number, a varint; or
 * length and bytes of a state. A value of most series takes 7 to 13 bytes in all.
 * Blobs are read in the order of their saving; the later word wins. The heading counts the records
 * 1, 2 and 4 of all blobs before it: after the loss of one that held any, a slot is only believed
 * once it was described anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "prom/series_int.h"

#define SAVE_SLICE  256u
#define BLOB_MAGIC  0x3153544cu
#define TEXT_MAX    ((size_t)1 << 20)
#define RECORD_ROOM 64u
#define LIST_KEPT   65536u /* places, between savings */

enum record { RECORD_GROUP = 1, RECORD_SERIES = 2, RECORD_VALUE = 3, RECORD_GONE = 4 };

struct heading {
    uint32_t magic, reserved;
    uint64_t checksum; /* of all that follows */
    uint64_t unix_ns, boot_ns, boot_id, defs;
};

static uint64_t boot_clock_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_BOOTTIME, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * LTN_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Which run of the machine this is; 0 unknown. */
static uint64_t boot_id(void)
{
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0)
        (void)close(fd);
    return n > 0 ? XXH3_64bits(text, (size_t)n) : 0;
}

/* ---- writing ---- */

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

static uint64_t zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static void put_text(struct ltn_buf *out, const char *text)
{
    uint8_t n[10];
    size_t len = strlen(text);
    (void)ltn_buf_append(out, n, (size_t)(put_varint(n, len) - n));
    (void)ltn_buf_append(out, text, len);
}

static void save_group(struct ltn_series *s, struct group *g, struct ltn_buf *out)
{
    uint8_t b[RECORD_ROOM];
    uint8_t *p = b;
    const struct family *f = g->family;
    if (g->saved_round == s->round)
        return;
    g->saved_round = s->round;
    *p++ = RECORD_GROUP;
    p = put_varint(p, g->id);
    *p++ = (uint8_t)f->type;
    *p++ = f->state ? 1 : 0;
    (void)ltn_buf_append(out, b, (size_t)(p - b));
    put_text(out, f->name);
    put_text(out, f->unit);
    put_text(out, f->help);
    put_text(out, g->scope->text);
    s->defs++;
}

static void save_state(const struct ltn_series *s, const struct slot *o, struct ltn_buf *out)
{
    struct ltn_buf state;
    uint8_t n[10];
    ltn_buf_init(&state, TEXT_MAX);
    if (o->state != NULL && s->state_ops != NULL)
        s->state_ops->save(o->state, &state);
    size_t len = ltn_buf_error(&state) == 0 ? state.len : 0;
    (void)ltn_buf_append(out, n, (size_t)(put_varint(n, len) - n));
    if (len > 0)
        (void)ltn_buf_append(out, state.data, len);
    ltn_buf_done(&state);
}

#define SAVED_FLAGS ((unsigned)(SLOT_HAS | SLOT_ENDED | SLOT_DELTA | SLOT_OVERFLOW))
#define FLAG_STATE  128u /* in blobs */
#define FLAG_WHOLE  1u

/* What records are relative to. */
struct last {
    ltn_series_ref ref;
    uint64_t time_ns;
};

/* True for whole numbers that a double holds exactly, but -0. */
static bool is_whole(double v, int64_t *ret)
{
    if (!(v > -9e15 && v < 9e15) || (v == 0 && signbit(v)))
        return false;
    *ret = (int64_t)v;
    return (double)*ret == v;
}

/* Time and value behind what stands in b up to p. */
static void save_value(const struct ltn_series *s, const struct slot *o, struct last *last,
                       uint8_t *b, uint8_t *p, struct ltn_buf *out)
{
    int64_t whole;
    p = put_varint(p, zigzag((int64_t)(o->time_ns - last->time_ns)));
    last->time_ns = o->time_ns;
    if (ltn_slot_group(s, o)->family->state) {
        (void)ltn_buf_append(out, b, (size_t)(p - b));
        save_state(s, o, out);
        return;
    }
    if ((o->flags & SLOT_DELTA) != 0)
        p = put_varint(p, zigzag((int64_t)(o->time_ns - o->start_ns)));
    if (is_whole(o->value, &whole)) {
        p = put_varint(p, zigzag(whole));
    } else {
        memcpy(p, &o->value, sizeof(o->value));
        p += sizeof(o->value);
    }
    (void)ltn_buf_append(out, b, (size_t)(p - b));
}

static uint8_t saved_flags(const struct ltn_series *s, const struct slot *o)
{
    int64_t whole;
    unsigned flags = o->flags & SAVED_FLAGS;
    if (ltn_slot_group(s, o)->family->state)
        flags |= FLAG_STATE;
    else if (is_whole(o->value, &whole))
        flags |= FLAG_WHOLE;
    return (uint8_t)flags;
}

static uint8_t *put_slot(uint8_t *p, struct last *last, ltn_series_ref ref)
{
    p = put_varint(p, zigzag((int64_t)ref - (int64_t)last->ref));
    last->ref = ref;
    return p;
}

static void save_slot(struct ltn_series *s, ltn_series_ref ref, bool whole, struct last *last,
                      struct ltn_buf *out)
{
    uint8_t b[RECORD_ROOM];
    uint8_t *p = b;
    struct slot *o = ltn_slot(s, ref);
    if ((o->flags & SLOT_USED) == 0) {
        *p++ = RECORD_GONE;
        p = put_varint(p, ref);
        (void)ltn_buf_append(out, b, (size_t)(p - b));
        s->defs++;
        return;
    }
    whole = whole || (o->flags & SLOT_NEW) != 0;
    if (whole)
        save_group(s, ltn_slot_group(s, o), out);
    *p++ = whole ? RECORD_SERIES : RECORD_VALUE;
    p = put_slot(p, last, ref);
    *p++ = saved_flags(s, o);
    if (whole) {
        uint32_t now_s = ltn_seconds(ltn_now_mono_ns());
        p = put_varint(p, ltn_slot_group(s, o)->id);
        p = put_varint(p, now_s > o->seen_s ? now_s - o->seen_s : 0);
        (void)ltn_buf_append(out, b, (size_t)(p - b));
        put_text(out, o->labels);
        p = b;
        s->defs++;
        o->flags &= (uint8_t) ~(unsigned)SLOT_NEW;
    }
    save_value(s, o, last, b, p, out);
}

static void begin_blob(const struct ltn_series *s, struct ltn_buf *out)
{
    static _Thread_local uint64_t boot;
    if (boot == 0)
        boot = boot_id();
    const struct heading h = {.magic = BLOB_MAGIC,
                              .unix_ns = ltn_now_unix_ns(),
                              .boot_ns = boot_clock_ns(),
                              .boot_id = boot,
                              .defs = s->defs};
    (void)ltn_buf_append(out, &h, sizeof(h));
}

static uint64_t checksum(const void *blob, size_t n)
{
    size_t skip = offsetof(struct heading, unix_ns);
    return XXH3_64bits((const uint8_t *)blob + skip, n - skip);
}

static void end_blob(struct ltn_buf *out)
{
    if (ltn_buf_error(out) != 0 || out->len < sizeof(struct heading))
        return;
    uint64_t sum = checksum(out->data, out->len);
    memcpy(out->data + offsetof(struct heading, checksum), &sum, sizeof(sum));
}

/* ---- what changed ---- */

static void mark_everything(struct ltn_series *s)
{
    for (ltn_series_ref r = 1; r <= s->slot_count; r++) {
        struct slot *o = ltn_slot(s, r);
        if ((o->flags & SLOT_USED) == 0)
            continue;
        o->flags |= SLOT_NEW;
        ltn_series_mark(s, r);
    }
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->group_list[i] != NULL)
            s->group_list[i]->saved_round = 0;
}

void ltn_series_save_begin(struct ltn_series *s, bool everything)
{
    ltn_series_lock(s);
    if (everything) {
        s->defs = 0;
        s->old_at = 0;
        s->round++;
    }
    if (everything || s->dirty_all) {
        s->dirty_all = false;
        mark_everything(s);
    }
    uint32_t *list = s->saving;
    size_t room = s->saving_room;
    s->saving = s->dirty;
    s->saving_room = s->dirty_room;
    s->saving_count = s->dirty_count;
    s->saving_at = 0;
    s->dirty = list;
    s->dirty_room = room;
    s->dirty_count = 0;
    s->defs_begin = s->defs;
    s->old_at_begin = s->old_at;
    s->round_begin = s->round;
    ltn_series_unlock(s);
}

bool ltn_series_save_next(struct ltn_series *s, struct ltn_buf *out, size_t max_bytes)
{
    struct last last = {0, 0};
    if (s->saving_at == s->saving_count)
        return false;
    begin_blob(s, out);
    while (s->saving_at < s->saving_count && out->len < max_bytes) {
        ltn_series_lock(s);
        for (size_t i = 0; i < SAVE_SLICE && s->saving_at < s->saving_count; i++) {
            ltn_series_ref r = s->saving[s->saving_at++];
            if (s->saving_at + 8 < s->saving_count)
                __builtin_prefetch(ltn_slot(s, s->saving[s->saving_at + 8]));
            ltn_slot(s, r)->flags &= (uint8_t) ~(unsigned)SLOT_DIRTY;
            save_slot(s, r, false, &last, out);
        }
        ltn_series_unlock(s);
    }
    end_blob(out);
    return true;
}

bool ltn_series_save_old(struct ltn_series *s, struct ltn_buf *out, size_t max_bytes,
                         uint64_t *ret_round)
{
    struct last last = {0, 0};
    ltn_series_lock(s);
    if (s->old_at >= s->slot_count) {
        s->old_at = 0;
        s->round++;
    }
    *ret_round = s->round;
    bool any = s->slot_count > 0;
    if (any)
        begin_blob(s, out);
    for (uint32_t n = 0; s->old_at < s->slot_count && out->len < max_bytes; n++) {
        ltn_series_ref r = ++s->old_at;
        const struct slot *o = ltn_slot(s, r);
        /* What changed meanwhile comes with the next saving, but its labels are needed now. */
        if ((o->flags & SLOT_USED) != 0)
            save_slot(s, r, true, &last, out);
        if (n % SAVE_SLICE == SAVE_SLICE - 1) {
            ltn_series_unlock(s);
            ltn_series_lock(s);
        }
    }
    ltn_series_unlock(s);
    end_blob(out);
    return any;
}

void ltn_series_save_end(struct ltn_series *s, bool ok)
{
    ltn_series_lock(s);
    for (size_t i = 0; !ok && i < s->saving_count; i++) {
        struct slot *o = ltn_slot(s, s->saving[i]);
        if ((o->flags & SLOT_USED) != 0)
            o->flags |= SLOT_NEW;
        if (i >= s->saving_at)
            o->flags &= (uint8_t) ~(unsigned)SLOT_DIRTY; /* was not looked at */
        ltn_series_mark(s, s->saving[i]);
    }
    if (!ok) {
        s->defs = s->defs_begin;
        s->old_at = s->old_at_begin;
        s->round = s->round_begin;
        for (uint32_t i = 0; i < s->group_count; i++)
            if (s->group_list[i] != NULL)
                s->group_list[i]->saved_round = 0;
    }
    if (s->saving_room > LIST_KEPT) {
        free(s->saving);
        s->saving = NULL;
        s->saving_room = 0;
    }
    s->saving_count = s->saving_at = 0;
    ltn_series_unlock(s);
}

/* ---- reading ---- */

struct reader {
    const uint8_t *p, *end;
    bool bad;
};

static uint64_t get_varint(struct reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        uint8_t b = *r->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    r->bad = true;
    return 0;
}

static int64_t get_zigzag(struct reader *r)
{
    uint64_t v = get_varint(r);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static uint8_t get_byte(struct reader *r)
{
    if (r->p < r->end)
        return *r->p++;
    r->bad = true;
    return 0;
}

static const uint8_t *get_bytes(struct reader *r, size_t *ret_n)
{
    uint64_t n = get_varint(r);
    if (r->bad || n > (uint64_t)(r->end - r->p)) {
        r->bad = true;
        *ret_n = 0;
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    *ret_n = (size_t)n;
    return p;
}

/* A copy with a terminator; NULL with bad set. */
static char *get_text(struct reader *r)
{
    size_t n;
    const uint8_t *p = get_bytes(r, &n);
    char *text = p != NULL && memchr(p, 0, n) == NULL ? strndup((const char *)p, n) : NULL;
    if (text == NULL)
        r->bad = true;
    return text;
}

static int load_group(struct ltn_series *s, struct reader *r)
{
    uint64_t id = get_varint(r);
    uint8_t type = get_byte(r), state = get_byte(r);
    char *text[4] = {NULL};
    struct family *f = NULL;
    struct group *g = NULL;
    int rc = 0;
    for (size_t i = 0; i < 4; i++)
        text[i] = get_text(r);
    if (!r->bad && id <= UINT32_MAX) {
        const struct ltn_series_desc d = {.family = text[0],
                                          .type = (enum ltn_prom_type)type,
                                          .unit = text[1],
                                          .help = text[2],
                                          .state = state != 0};
        /* A family that is reserved now, or has no room, takes its series with it. */
        if (ltn_series_get_family(s, &d, &f) == 0)
            rc = ltn_series_get_group(s, f, text[3], &g);
    }
    if (g != NULL) {
        g->id = (uint32_t)id;
        s->group_id = g->id > s->group_id ? g->id : s->group_id;
        rc = ltn_map_put_u64(&s->load_groups, id, g);
    }
    for (size_t i = 0; i < 4; i++)
        free(text[i]);
    s->load_defs++;
    return rc == -ENOMEM ? rc : 0;
}

static void clear_slot(struct ltn_series *s, struct slot *o)
{
    if ((o->flags & SLOT_USED) == 0)
        return;
    if (ltn_slot_group(s, o)->family->state && o->state != NULL && s->state_ops != NULL)
        s->state_ops->free(o->state);
    free(o->labels);
    *o = (struct slot){.flags = 0};
}

static void trust(struct ltn_series *s, ltn_series_ref ref)
{
    if (s->trusted != NULL)
        s->trusted[ref / 8] |= (uint8_t)(1u << ref % 8);
}

static bool is_trusted(const struct ltn_series *s, ltn_series_ref ref)
{
    return s->trusted == NULL || (s->trusted[ref / 8] >> ref % 8 & 1) != 0;
}

static ltn_series_ref get_slot(struct reader *r, struct last *last)
{
    int64_t ref = (int64_t)last->ref + get_zigzag(r);
    if (ref <= 0 || ref >= (int64_t)LTN_SLOTS_MAX)
        r->bad = true;
    last->ref = r->bad ? 0 : (ltn_series_ref)ref;
    return last->ref;
}

/* Time and value into o; NULL: read over them. */
static void load_value(const struct ltn_series *s, struct slot *o, struct reader *r, unsigned flags,
                       struct last *last)
{
    struct slot v = {.time_ns = last->time_ns + (uint64_t)get_zigzag(r)};
    size_t n = 0;
    const uint8_t *state = NULL;
    last->time_ns = v.time_ns;
    if ((flags & FLAG_STATE) != 0) {
        state = get_bytes(r, &n);
    } else {
        if ((flags & SLOT_DELTA) != 0)
            v.start_ns = v.time_ns - (uint64_t)get_zigzag(r);
        if ((flags & FLAG_WHOLE) != 0) {
            v.value = (double)get_zigzag(r);
        } else if (r->end - r->p >= 8) {
            memcpy(&v.value, r->p, 8);
            r->p += 8;
        } else {
            r->bad = true;
        }
    }
    if (r->bad || o == NULL)
        return;
    if ((flags & FLAG_STATE) == 0) {
        o->value = v.value;
    } else {
        if (o->state != NULL)
            s->state_ops->free(o->state);
        o->state = n > 0 && s->state_ops != NULL ? s->state_ops->load(state, n) : NULL;
        if (o->state == NULL)
            flags &= ~(unsigned)SLOT_HAS;
    }
    o->time_ns = v.time_ns;
    o->start_ns = v.start_ns;
    o->flags = (uint8_t)((o->flags & ~SAVED_FLAGS) | (flags & SAVED_FLAGS));
}

struct loading {
    struct last last;
    uint32_t now_s, age_s;
};

static uint32_t seen(const struct loading *l, uint64_t age_s)
{
    age_s += l->age_s;
    return age_s < l->now_s ? l->now_s - (uint32_t)age_s : 0;
}

static bool state_fits(const struct ltn_series *s, const struct slot *o, unsigned flags)
{
    return ltn_slot_group(s, o)->family->state == ((flags & FLAG_STATE) != 0);
}

/* More slots than that never are: live ones, and as many that went. */
static uint64_t most_slots(const struct ltn_series *s)
{
    uint64_t n = 4 * (uint64_t)(s->opts.max_series + s->opts.max_families);
    return n < LTN_SLOTS_MAX ? n : LTN_SLOTS_MAX - 1;
}

static int load_series(struct ltn_series *s, struct reader *r, struct loading *l)
{
    ltn_series_ref ref = get_slot(r, &l->last);
    unsigned flags = get_byte(r);
    uint64_t id = get_varint(r), age_s = get_varint(r);
    char *labels = get_text(r);
    struct group *g = ltn_map_get_u64(&s->load_groups, id);
    struct slot *o = NULL;
    s->load_defs++;
    r->bad = r->bad || ref > most_slots(s);
    if (r->bad || ltn_series_reach(s, ref) != 0) {
        free(labels);
        return r->bad ? 0 : -ENOMEM;
    }
    clear_slot(s, ltn_slot(s, (ltn_series_ref)ref));
    if (g != NULL && g->family->state == ((flags & FLAG_STATE) != 0)) {
        o = ltn_slot(s, (ltn_series_ref)ref);
        *o = (struct slot){.labels = labels,
                           .group = g->index & 0xffffff,
                           .flags = SLOT_USED,
                           .seen_s = seen(l, age_s)};
        trust(s, (ltn_series_ref)ref);
    } else {
        s->stats.unknown++;
        free(labels);
    }
    load_value(s, o, r, flags, &l->last);
    return 0;
}

static void load_later(struct ltn_series *s, struct reader *r, struct loading *l)
{
    ltn_series_ref ref = get_slot(r, &l->last);
    unsigned flags = get_byte(r);
    bool known = ref > 0 && ref <= s->slot_count && is_trusted(s, (ltn_series_ref)ref);
    struct slot *o = known ? ltn_slot(s, (ltn_series_ref)ref) : NULL;
    if (o != NULL && ((o->flags & SLOT_USED) == 0 || !state_fits(s, o, flags)))
        o = NULL;
    /* Without any damage it is only that the walk over all had not come to it yet. */
    if (o == NULL)
        s->stats.unknown += s->stats.damaged > 0 ? 1 : 0;
    else
        o->seen_s = seen(l, 0);
    load_value(s, o, r, flags, &l->last);
}

static void load_gone(struct ltn_series *s, struct reader *r)
{
    uint64_t ref = get_varint(r);
    s->load_defs++;
    if (r->bad || ref == 0 || ref > s->slot_count)
        return;
    clear_slot(s, ltn_slot(s, (ltn_series_ref)ref));
    trust(s, (ltn_series_ref)ref);
}

static int load_records(struct ltn_series *s, struct reader *r, struct loading *l)
{
    int rc = 0;
    while (rc == 0 && r->p < r->end && !r->bad) {
        switch (get_byte(r)) {
        case RECORD_GROUP:
            rc = load_group(s, r);
            break;
        case RECORD_SERIES:
            rc = load_series(s, r, l);
            break;
        case RECORD_VALUE:
            load_later(s, r, l);
            break;
        case RECORD_GONE:
            load_gone(s, r);
            break;
        default:
            r->bad = true;
        }
    }
    if (r->bad)
        s->stats.damaged++;
    return rc;
}

/* How long ago that was: by the clock of this run of the machine, else by the wall clock. */
static uint32_t age_of(const struct heading *h)
{
    static _Thread_local uint64_t boot;
    if (boot == 0)
        boot = boot_id();
    bool same = h->boot_id == boot && boot != 0 && h->boot_ns != 0;
    uint64_t now = same ? boot_clock_ns() : ltn_now_unix_ns();
    uint64_t then = same ? h->boot_ns : h->unix_ns;
    uint64_t s = now > then ? (now - then) / LTN_NS_PER_S : 0;
    return s < UINT32_MAX ? (uint32_t)s : UINT32_MAX;
}

/* Something that describes slots is missing: none is believed until it is described anew. */
static int distrust(struct ltn_series *s)
{
    if (s->trusted == NULL)
        s->trusted = malloc(LTN_SLOTS_MAX / 8);
    if (s->trusted == NULL)
        return -ENOMEM;
    memset(s->trusted, 0, LTN_SLOTS_MAX / 8);
    return 0;
}

int ltn_series_load(struct ltn_series *s, const void *blob, size_t n, uint64_t now_ns)
{
    struct heading h;
    int rc = 0;
    ltn_series_lock(s);
    if (n < sizeof(h) || (memcpy(&h, blob, sizeof(h)), h.magic != BLOB_MAGIC) ||
        h.checksum != checksum(blob, n)) {
        s->stats.damaged++;
        ltn_series_unlock(s);
        return 0;
    }
    if (s->load_began && h.defs != s->load_defs)
        rc = distrust(s);
    s->load_began = true;
    s->load_defs = h.defs;
    struct reader r = {.p = (const uint8_t *)blob + sizeof(h), .end = (const uint8_t *)blob + n};
    struct loading l = {.now_s = ltn_seconds(now_ns), .age_s = age_of(&h)};
    if (rc == 0)
        rc = load_records(s, &r, &l);
    ltn_series_unlock(s);
    return rc;
}

int ltn_series_load_end(struct ltn_series *s, uint64_t now_ns)
{
    int rc = 0;
    ltn_series_lock(s);
    for (ltn_series_ref r = s->slot_count; r >= 1 && rc == 0; r--) {
        struct slot *o = ltn_slot(s, r);
        if ((o->flags & SLOT_USED) == 0) {
            ltn_series_give_slot(s, r);
            continue;
        }
        rc = ltn_series_attach(s, r);
        s->stats.restored++;
    }
    s->defs = s->load_defs;
    free(s->trusted);
    s->trusted = NULL;
    ltn_map_done(&s->load_groups, NULL);
    ltn_map_init(&s->load_groups, LTN_GROUPS_MAX);
    ltn_series_unlock(s);
    if (rc == 0)
        ltn_series_expire(s, now_ns);
    return rc;
}
