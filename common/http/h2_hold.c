/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that are held back by their stream's window until they are wanted. */
#include "base/attr.h"
#include "http/h2-internals.h"

#define HOLD_NS (1 * LTN_NS_PER_S)

void ltn_h2_let_body_in(struct ltn_h2 *s, int32_t id)
{
    int32_t have = nghttp2_session_get_stream_effective_local_window_size(s->ng, id);
    if (have >= 0 && (uint32_t)have < s->conf.stream_window_bytes) {
        (void)nghttp2_session_set_local_window_size(s->ng, NGHTTP2_FLAG_NONE, id,
                                                    (int32_t)s->conf.stream_window_bytes);
    }
}

/* From now on streams begin with the small window; those under way lost theirs with it. */
void ltn_h2_settings_known(struct ltn_h2 *s)
{
    s->held_known = s->holding;
    if (!s->holding) {
        return;
    }
    for (struct ltn_h2_stream *st = s->streams; st != NULL; st = st->next) {
        if (st->request != NULL && !st->waits) {
            ltn_h2_let_body_in(s, st->id);
        }
    }
}

static void announce_window(struct ltn_h2 *s, uint32_t bytes)
{
    const nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, bytes};
    (void)nghttp2_submit_settings(s->ng, NGHTTP2_FLAG_NONE, &entry, 1);
}

void ltn_h2_hold_bodies(struct ltn_h2 *s)
{
    s->hold_until_ns = s->now_ns + HOLD_NS;
    if (!s->holding) {
        s->holding = true;
        announce_window(s, 0);
    }
}

void ltn_h2_say_continue(struct ltn_h2 *s, int32_t id)
{
    static const char name[] = ":status";
    static const char value[] = "100";
    const nghttp2_nv nv = {.name = (uint8_t *)(uintptr_t)name,
                           .value = (uint8_t *)(uintptr_t)value,
                           .namelen = sizeof(name) - 1,
                           .valuelen = sizeof(value) - 1};
    (void)nghttp2_submit_headers(s->ng, NGHTTP2_FLAG_NONE, id, NULL, &nv, 1, NULL);
}

void ltn_h2_wait(struct ltn_h2 *s, int32_t id)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st != NULL) {
        st->waits = true;
    }
}

void ltn_h2_go_on(struct ltn_h2 *s, int32_t id, size_t withheld)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st == NULL) {
        return;
    }
    st->waits = false;
    if (st->expects) {
        ltn_h2_say_continue(s, id);
    }
    if (s->held_known) {
        ltn_h2_let_body_in(s, id);
    }
    if (withheld > 0) {
        (void)nghttp2_session_consume_stream(s->ng, id, withheld);
    }
}

/* The windows of those that wait would open with the others. */
static bool somebody_waits(const struct ltn_h2 *s)
{
    const struct ltn_h2_stream *st = s->streams;
    while (st != NULL && (!st->waits || st->done)) {
        st = st->next;
    }
    return st != NULL;
}

void ltn_h2_hold_tick(struct ltn_h2 *s)
{
    if (s->holding && s->now_ns > s->hold_until_ns && !somebody_waits(s)) {
        s->holding = false;
        announce_window(s, s->conf.stream_window_bytes);
    }
}
