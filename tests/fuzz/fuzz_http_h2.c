/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 session: the first byte chooses cuts and replies; the preface is put in front. */
#include <stdlib.h>
#include <string.h>

#include "http/h2.h"

#define MAX_OPEN 128

struct rig {
    struct ltn_h2 *s;
    uint8_t mode;
    int32_t waiting[MAX_OPEN];
    size_t count;
    int open;
};

static void reply(struct rig *r, int32_t id)
{
    const struct ltn_http_field trailer = {"grpc-status", "0"};
    struct ltn_session_reply rep = {.status = 200, .body = strdup("ok"), .body_len = 2};
    if ((r->mode & 32) != 0) {
        rep.trailers = &trailer;
        rep.trailer_count = 1;
        rep.no_length = true;
    }
    if (ltn_h2_reply(r->s, id, &rep) == 0) {
        r->open--;
    }
}

static bool turns_away(void *arg, int32_t id, const struct ltn_head *head)
{
    struct rig *r = arg;
    if ((r->mode & 8) == 0 || ltn_head_get(head, "te") == NULL) {
        return false;
    }
    r->open++;
    reply(r, id);
    return true;
}

static void *on_head(void *arg, int32_t id, struct ltn_head *head, bool body)
{
    struct rig *r = arg;
    (void)body;
    ltn_head_free(head);
    r->open++;
    if ((r->mode & 4) != 0) {
        reply(r, id);
        return NULL;
    }
    if (r->count < MAX_OPEN) {
        r->waiting[r->count++] = id;
    }
    return r;
}

static void on_data(void *arg, void *request, const uint8_t *p, size_t n)
{
    struct rig *r = arg;
    if (request != r || (n > 0 && p == NULL)) {
        abort();
    }
    if ((r->mode & 8) != 0) {
        ltn_h2_credit_connection(r->s, n);
    }
}

static void on_end(void *arg, void *request)
{
    if (request != arg) {
        abort();
    }
}

static void on_closed(void *arg, void *request)
{
    struct rig *r = arg;
    if (request != r || r->open <= 0) {
        abort();
    }
    r->open--;
}

static void drain_output(struct rig *r)
{
    uint8_t out[700];
    while (ltn_h2_pull(r->s, out, sizeof(out)) > 0) {
    }
}

static int feed(struct rig *r, const uint8_t *p, size_t n, uint64_t now_ns)
{
    int rc = 0;
    size_t used;
    for (; n > 0 && rc == 0; p += used, n -= used) {
        rc = ltn_h2_feed(r->s, p, n, now_ns, &used);
        if (used > n) {
            abort();
        }
        if ((r->mode & 16) != 0) {
            drain_output(r);
        }
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct ltn_session_sink sink = {on_head, on_data, on_end, on_closed, turns_away};
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    struct ltn_h2_spares spares = {0};
    const struct ltn_h2_conf conf = {
        .spares = &spares,
        .max_header_bytes = 2048,
        .max_header_count = 16,
        .max_streams = 16,
        .stream_window_bytes = 65535,
        .connection_window_bytes = 65535,
        .reset_burst = 50,
        .reset_per_s = 1,
        .nuisance_burst = 100,
        .nuisance_per_s = 1,
        .fault_burst = 50,
        .fault_per_s = 1,
    };
    struct rig r = {0};
    uint64_t now_ns = 1;
    if (n == 0) {
        return 0;
    }
    r.mode = p[0];
    r.s = ltn_h2_new(&conf, &sink, &r);
    int rc = feed(&r, (const uint8_t *)preface, sizeof(preface), now_ns);
    size_t step = (r.mode & 3) == 0 ? n : (size_t)(r.mode & 3) * 9;
    for (size_t pos = 1; pos < n && rc == 0; pos += step) {
        rc = feed(&r, p + pos, n - pos < step ? n - pos : step, now_ns);
        if ((r.mode & 16) != 0) {
            drain_output(&r);
        }
        now_ns += LTN_NS_PER_MS * 100;
        ltn_h2_tick(r.s, now_ns);
    }
    if ((r.mode & 64) != 0) {
        for (size_t i = 0; i < r.count; i++) {
            reply(&r, r.waiting[i]);
        }
    }
    if ((r.mode & 128) != 0) {
        ltn_h2_drain(r.s);
        ltn_h2_drain_final(r.s);
    }
    drain_output(&r);
    ltn_h2_free(r.s);
    ltn_h2_spares_done(&spares);
    if (r.open != 0) {
        abort(); /* every request is replied to or reported closed */
    }
    return 0;
}
