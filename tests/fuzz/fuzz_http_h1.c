/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 session: the first byte chooses how the input is cut and when replies come. */
#include <stdlib.h>
#include <string.h>

#include "http/h1.h"

struct rig {
    struct ltn_h1 *s;
    uint8_t mode;
    int open;
    bool early;
};

static void reply(struct rig *r)
{
    struct ltn_session_reply rep = {.status = 200, .body = strdup("ok"), .body_len = 2};
    int rc = ltn_h1_reply(r->s, &rep);
    (void)rc;
    r->open = 0;
}

static void *on_head(void *arg, int32_t id, struct ltn_head *head, bool body)
{
    struct rig *r = arg;
    (void)id;
    (void)body;
    if (head->method == NULL || head->target == NULL) {
        abort();
    }
    ltn_head_free(head);
    if (r->open) {
        abort(); /* one at a time */
    }
    r->open = 1;
    if ((r->mode & 4) != 0) {
        reply(r);
        return NULL;
    }
    return r;
}

static void on_data(void *arg, void *request, const uint8_t *p, size_t n)
{
    struct rig *r = arg;
    if (request != r || (n > 0 && p == NULL) || !r->open) {
        abort();
    }
    if ((r->mode & 8) != 0) {
        reply(r);
    }
}

static void on_end(void *arg, void *request)
{
    struct rig *r = arg;
    if (request != r || !r->open) {
        abort();
    }
    if ((r->mode & 16) != 0) {
        reply(r);
    }
}

static void on_closed(void *arg, void *request)
{
    struct rig *r = arg;
    (void)request;
    r->open = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct ltn_session_sink sink = {
        .head = on_head, .data = on_data, .end = on_end, .closed = on_closed};
    const struct ltn_h1_conf conf = {1024, 16};
    struct rig r = {0};
    uint8_t out[512];
    if (n == 0) {
        return 0;
    }
    r.mode = p[0];
    r.s = ltn_h1_new(&conf, &sink, &r);
    size_t step = (r.mode & 3) == 0 ? n : (size_t)(r.mode & 3) * 7 - 6;
    size_t pos = 1;
    while (pos < n && !ltn_h1_closing(r.s)) {
        size_t part = n - pos < step ? n - pos : step;
        size_t used = 0;
        if (ltn_h1_feed(r.s, p + pos, part, &used) != 0 && !ltn_h1_closing(r.s)) {
            abort();
        }
        pos += used;
        if (ltn_h1_blocked(r.s) && r.open) {
            reply(&r);
        } else if (used == 0 && !ltn_h1_has_output(r.s) && !ltn_h1_closing(r.s)) {
            abort(); /* stuck */
        }
        while (ltn_h1_pull(r.s, out, sizeof(out)) > 0) {
        }
    }
    ltn_h1_free(r.s);
    return 0;
}
