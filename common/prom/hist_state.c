/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/hist_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "prom/name.h"

#define FAMILIES_MAX 1000000

/* The bounds of the exponential histograms of one family. */
struct family {
    size_t refs;
    bool stale; /* shown does not have all that is needed */
    struct ltn_hist_grid needs, shown;
    char name[];
};

struct state {
    struct ltn_hist *h;
    struct family *family;
};

/* Under the lock of the table. */
struct families {
    struct ltn_map by_name;
    size_t max_bytes;
    struct ltn_hist_stats stats;
};

static struct family *get_family(struct families *a, const char *name, size_t n)
{
    struct family *f = ltn_map_get(&a->by_name, name, n);
    if (f == NULL) {
        f = calloc(1, sizeof(*f) + n + 1);
        if (f == NULL)
            return NULL;
        memcpy(f->name, name, n);
        ltn_hist_grid_begin(&f->needs);
        f->stale = true;
        if (ltn_map_put(&a->by_name, name, n, f) != 0) {
            free(f);
            return NULL;
        }
    }
    f->refs++;
    return f;
}

static void drop_family(struct families *a, struct family *f)
{
    if (f == NULL || --f->refs > 0)
        return;
    (void)ltn_map_del(&a->by_name, f->name, strlen(f->name));
    free(f);
}

static void need(struct family *f, const struct ltn_hist *h)
{
    ltn_hist_grid_add(&f->needs, h);
    f->stale = true;
}

/* ---- what the table asks for ---- */

static void state_free(void *arg, void *state)
{
    struct families *a = arg;
    struct state *o = state;
    a->stats.bytes -= sizeof(*o) + (o->h != NULL ? ltn_hist_bytes(o->h) : 0);
    ltn_hist_free(o->h);
    drop_family(a, o->family);
    free(o);
}

static void state_save(void *arg, const void *state, struct ltn_buf *out)
{
    const struct state *o = state;
    size_t n = strlen(o->family->name);
    (void)arg;
    (void)ltn_buf_putc(out, (char)n);
    (void)ltn_buf_append(out, o->family->name, n);
    (void)!ltn_hist_save(o->h, out); /* errors stick there; one without a point is not loaded */
}

static struct state *new_state(struct families *a, const char *family, size_t n, struct ltn_hist *h)
{
    struct state *o = calloc(1, sizeof(*o));
    struct family *f = o != NULL && h != NULL ? get_family(a, family, n) : NULL;
    if (f == NULL) {
        ltn_hist_free(h);
        free(o);
        return NULL;
    }
    *o = (struct state){h, f};
    a->stats.bytes += sizeof(*o) + ltn_hist_bytes(h);
    return o;
}

static void *state_load(void *arg, const uint8_t *p, size_t n)
{
    size_t k = n > 0 ? p[0] : 0;
    if (k == 0 || k + 1 > n || memchr(p + 1, '\0', k) != NULL)
        return NULL;
    struct state *o = new_state(arg, (const char *)p + 1, k, ltn_hist_load(p + 1 + k, n - 1 - k));
    if (o != NULL)
        need(o->family, o->h);
    return o;
}

static void state_write(void *arg, const void *state, struct ltn_prom *out, const char *labels)
{
    const struct state *o = state;
    struct family *f = o->family;
    (void)arg;
    if (f->stale) {
        f->shown = f->needs;
        ltn_hist_grid_end(&f->shown);
        f->stale = false;
    }
    ltn_hist_write(o->h, &f->shown, labels, out);
}

static void all_done(void *arg)
{
    struct families *a = arg;
    ltn_map_done(&a->by_name, free);
    free(a);
}

int ltn_hist_attach(struct ltn_series *s, size_t max_bytes)
{
    static const struct ltn_series_state_ops ops = {state_free, state_save, state_load, state_write,
                                                    all_done};
    struct families *a = calloc(1, sizeof(*a));
    _Static_assert(LTN_PROM_NAME_BYTES <= 256, "a name's length is one byte");
    if (a == NULL)
        return -ENOMEM;
    ltn_map_init(&a->by_name, FAMILIES_MAX);
    a->max_bytes = max_bytes != 0 ? max_bytes : LTN_HIST_MAX_BYTES;
    ltn_series_set_state_ops(s, &ops, a);
    return 0;
}

/* ---- points ---- */

static bool was_taken(enum ltn_hist_fate fate)
{
    return fate == LTN_HIST_TAKEN || fate == LTN_HIST_GAP || fate == LTN_HIST_OVERLAP;
}

/* What has grown is not let grow on when there is no room; what is there may be set anew. */
static bool has_room(const struct families *a, const struct ltn_hist *h,
                     const struct ltn_hist_point *p)
{
    size_t before = h != NULL ? ltn_hist_bytes(h) : 0;
    size_t after = ltn_hist_point_bytes(p) + (h != NULL ? 0 : sizeof(struct state));
    return after <= before || a->stats.bytes + (after - before) <= a->max_bytes;
}

static int take(struct families *a, void **at, const char *family, const struct ltn_hist_point *p,
                bool overflow, enum ltn_hist_fate *fate)
{
    struct state *o = *at;
    if (!has_room(a, o != NULL ? o->h : NULL, p)) {
        a->stats.no_room++;
        *fate = LTN_HIST_NO_ROOM;
        return 0;
    }
    if (o == NULL)
        *at = o = new_state(a, family, strlen(family), ltn_hist_new());
    if (o == NULL)
        return -ENOMEM;
    a->stats.bytes -= ltn_hist_bytes(o->h);
    int rc = ltn_hist_set(o->h, p, overflow, fate);
    a->stats.bytes += ltn_hist_bytes(o->h);
    if (rc == 0 && was_taken(*fate))
        need(o->family, o->h);
    return rc;
}

static void count(struct ltn_hist_stats *st, enum ltn_hist_fate fate)
{
    st->taken += was_taken(fate) ? 1 : 0;
    st->gaps += fate == LTN_HIST_GAP ? 1 : 0;
    st->late += fate == LTN_HIST_OLD ? 1 : 0;
    st->overlaps += fate == LTN_HIST_OVERLAP ? 1 : 0;
    st->refused += fate == LTN_HIST_REFUSED ? 1 : 0;
}

int ltn_hist_take(struct ltn_series *s, ltn_series_ref ref, const char *family,
                  const struct ltn_hist_point *p, uint64_t time_ns, uint64_t now_ns)
{
    struct families *a = ltn_series_state_arg(s);
    enum ltn_hist_fate fate = LTN_HIST_TAKEN;
    int rc = 0;
    ltn_series_lock(s);
    void **at = ltn_series_state(s, ref);
    if (at == NULL || a == NULL) {
        ltn_series_unlock(s);
        return a == NULL ? 0 : LTN_ERR_BUSY; /* nobody wants histograms; it expired since */
    }
    bool overflow = ltn_series_is_overflow(s, ref);
    if (p != NULL)
        rc = take(a, at, family, p, overflow, &fate);
    else if (overflow || (time_ns != 0 && time_ns < ltn_series_time(s, ref)))
        fate = LTN_HIST_OLD;
    if (rc == 0) {
        count(&a->stats, fate);
        if (was_taken(fate))
            ltn_series_touch(s, ref, time_ns, p == NULL, now_ns);
    }
    ltn_series_unlock(s);
    return rc;
}

void ltn_hist_stats(struct ltn_series *s, struct ltn_hist_stats *ret)
{
    const struct families *a = ltn_series_state_arg(s);
    *ret = (struct ltn_hist_stats){.taken = 0};
    if (a == NULL)
        return;
    ltn_series_lock(s);
    *ret = a->stats;
    ltn_series_unlock(s);
}
