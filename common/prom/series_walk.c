/* SPDX-License-Identifier: Apache-2.0 */
/* The exposition: a walk over families, groups and series that lets the lock go in between. What it
 * stands on cannot vanish, as nothing expires while a cursor is open; new series and groups come in
 * at the head of their lists, behind the walk. */
#include "prom/series_int.h"

#define WRITE_SLICE  128u
#define LABELS_BYTES ((size_t)1 << 20)

void ltn_series_walk(struct ltn_series *s, struct ltn_series_cursor *c)
{
    *c = (struct ltn_series_cursor){.s = s, .open = true};
    ltn_series_lock(s);
    s->cursors++;
    ltn_series_unlock(s);
}

void ltn_series_walk_end(struct ltn_series_cursor *c)
{
    if (!c->open)
        return;
    c->open = false;
    ltn_series_lock(c->s);
    c->s->cursors--;
    ltn_series_unlock(c->s);
}

static void write_one(const struct ltn_series *s, const struct slot *o, struct ltn_prom *out,
                      struct ltn_buf *text)
{
    const struct group *g = ltn_slot_group(s, o);
    const char *labels = g->scope->text;
    if (o->labels[0] != '\0') {
        ltn_buf_reset(text);
        (void)ltn_buf_puts(text, g->scope->text);
        if (text->len > 0)
            (void)ltn_buf_putc(text, ',');
        (void)ltn_buf_puts(text, o->labels);
        labels = ltn_buf_str(text);
    }
    if (!g->family->state)
        ltn_prom_sample_text(out, labels, o->value);
    else if (o->state != NULL && s->state_ops != NULL)
        s->state_ops->write(s->state_arg, o->state, out, labels);
}

/* Of the infos of one target the newest, as there may be but one; 0 when none has a value. */
static ltn_series_ref newest(const struct ltn_series *s, ltn_series_ref head)
{
    ltn_series_ref best = 0;
    for (ltn_series_ref r = head; r != 0; r = ltn_slot(s, r)->next)
        if ((ltn_slot(s, r)->flags & SLOT_HAS) != 0 &&
            (best == 0 || ltn_slot(s, r)->seen_s > ltn_slot(s, best)->seen_s))
            best = r;
    return best;
}

/* The group behind the present one, over the families; false at the end. */
static bool next_group(struct ltn_series_cursor *c)
{
    const struct ltn_series *s = c->s;
    struct group *g = c->group;
    if (g != NULL)
        g = g->next;
    while (g == NULL) {
        if (c->group != NULL)
            c->family++;
        c->group = NULL;
        c->heading = false;
        while (c->family < s->family_count &&
               (s->family_list[c->family] == NULL || s->family_list[c->family]->groups == NULL))
            c->family++;
        if (c->family >= s->family_count)
            return false;
        g = s->family_list[c->family]->groups;
    }
    c->group = g;
    c->slot = g->family->type == LTN_PROM_INFO ? newest(s, g->head) : g->head;
    return true;
}

bool ltn_series_walk_next(struct ltn_series_cursor *c, struct ltn_prom *out, size_t max)
{
    struct ltn_series *s = c->s;
    struct ltn_buf text;
    bool more = c->open;
    ltn_buf_init(&text, LABELS_BYTES);
    ltn_series_lock(s);
    for (size_t n = 0; more && n < max; n++) {
        if (c->slot == 0) {
            more = next_group(c);
            continue;
        }
        const struct slot *o = ltn_slot(s, c->slot);
        const struct family *f = ltn_slot_group(s, o)->family;
        c->slot = f->type == LTN_PROM_INFO ? 0 : o->next;
        if ((o->flags & SLOT_HAS) == 0)
            continue;
        if (!c->heading)
            ltn_prom_family(out, f->name, f->type, f->unit, f->help);
        c->heading = true;
        write_one(s, o, out, &text);
    }
    ltn_series_unlock(s);
    ltn_buf_done(&text);
    return more;
}

void ltn_series_write(struct ltn_series *s, struct ltn_prom *out)
{
    struct ltn_series_cursor c;
    ltn_series_walk(s, &c);
    while (ltn_series_walk_next(&c, out, WRITE_SLICE))
        continue;
    ltn_series_walk_end(&c);
}
