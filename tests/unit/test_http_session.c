/* SPDX-License-Identifier: Apache-2.0 */
/* The two sessions, bytes in and bytes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "http/h1.h"
#include "http/h2.h"

struct rig {
    struct ltn_h1 *h1;
    struct ltn_h2 *h2;
    char log[4096]; /* what the session reported */
    int32_t id;
    bool refuse; /* answer 404 at the head */
    bool away;   /* turn away, with 503 */
    struct ltn_h2_spares spares;
    uint8_t out[200000];
    size_t out_len;
};

static void add(struct rig *r, const char *text)
{
    size_t n = strlen(r->log);
    (void)snprintf(r->log + n, sizeof(r->log) - n, "%s", text);
}

static void reply(struct rig *r, int status, const char *body)
{
    struct ltn_session_reply rep = {
        .status = status, .body = strdup(body), .body_len = strlen(body), .no_length = r->away};
    int rc = r->h1 != NULL ? ltn_h1_reply(r->h1, &rep) : ltn_h2_reply(r->h2, r->id, &rep);
    assert_int_equal(rc, 0);
}

static void *on_head(void *arg, int32_t id, struct ltn_head *head, bool body)
{
    struct rig *r = arg;
    r->id = id;
    add(r, head->method);
    add(r, " ");
    add(r, head->target);
    add(r, body ? "+" : "");
    add(r, ltn_head_get(head, "old") != NULL ? " (old)" : "");
    ltn_head_free(head);
    if (r->refuse) {
        reply(r, 404, "no");
        return NULL;
    }
    return r;
}

static void on_data(void *arg, void *request, const uint8_t *p, size_t n)
{
    struct rig *r = arg;
    char text[100];
    (void)request;
    (void)snprintf(text, sizeof(text), "[%.*s]", (int)(n < 40 ? n : 40), (const char *)p);
    add(r, text);
}

static void on_end(void *arg, void *request)
{
    (void)request;
    add(arg, ".");
}

static void on_closed(void *arg, void *request)
{
    (void)request;
    add(arg, "!");
}

static bool turns_away(void *arg, int32_t id, const struct ltn_head *head)
{
    struct rig *r = arg;
    (void)head;
    if (r->away) {
        r->id = id;
        add(r, "-");
        reply(r, 503, "");
    }
    return r->away;
}

static const struct ltn_session_sink sink = {on_head, on_data, on_end, on_closed, turns_away};

static struct rig *h1_rig(void)
{
    const struct ltn_h1_conf conf = {1000, 10};
    struct rig *r = calloc(1, sizeof(*r));
    r->h1 = ltn_h1_new(&conf, &sink, r);
    assert_non_null(r->h1);
    return r;
}

static const struct ltn_h2_conf h2_default = {
    .max_header_bytes = 1000,
    .max_header_count = 10,
    .max_streams = 10,
    .stream_window_bytes = 65535,
    .connection_window_bytes = 65535,
    .reset_burst = 5,
    .reset_per_s = 1,
    .nuisance_burst = 20,
    .nuisance_per_s = 1,
    .fault_burst = 5,
    .fault_per_s = 1,
};

static struct rig *h2_rig(void)
{
    struct ltn_h2_conf conf = h2_default;
    struct rig *r = calloc(1, sizeof(*r));
    conf.spares = &r->spares;
    r->h2 = ltn_h2_new(&conf, &sink, r);
    assert_non_null(r->h2);
    return r;
}

static void rig_free(struct rig *r)
{
    ltn_h1_free(r->h1);
    ltn_h2_free(r->h2);
    ltn_h2_spares_done(&r->spares);
    free(r);
}

static void pull(struct rig *r, size_t step)
{
    size_t n;
    do {
        n = r->h1 != NULL ? ltn_h1_pull(r->h1, r->out + r->out_len, step)
                          : ltn_h2_pull(r->h2, r->out + r->out_len, step);
        r->out_len += n;
        assert_true(r->out_len < sizeof(r->out));
    } while (n > 0);
    r->out[r->out_len] = '\0';
}

static bool has(const struct rig *r, const void *what, size_t n)
{
    return memmem(r->out, r->out_len, what, n) != NULL;
}

static void test_h1_every_cut(void **state)
{
    (void)state;
    static const char wire[] =
        "\r\nPOST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;e=1\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n";
    for (size_t cut = 1; cut < sizeof(wire); cut++) {
        struct rig *r = h1_rig();
        size_t used;
        assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)wire, cut, &used), 0);
        assert_int_equal(used, cut);
        assert_int_equal(
            ltn_h1_feed(r->h1, (const uint8_t *)wire + cut, sizeof(wire) - 1 - cut, &used), 0);
        assert_int_equal(used, sizeof(wire) - 1 - cut);
        assert_true(strncmp(r->log, "POST /a?b+", 10) == 0);
        assert_int_equal(r->log[strlen(r->log) - 1], '.');
        assert_true(ltn_h1_blocked(r->h1));
        reply(r, 200, "ok");
        pull(r, 7);
        assert_true(has(r, "\r\n\r\nok", 6));
        assert_true(ltn_h1_idle(r->h1));
        rig_free(r);
    }
}

static void test_h1_pipelined_waits(void **state)
{
    (void)state;
    static const char wire[] =
        "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n";
    struct rig *r = h1_rig();
    size_t used;
    assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)wire, sizeof(wire) - 1, &used), 0);
    assert_int_equal(used, (sizeof(wire) - 1) / 2);
    assert_string_equal(r->log, "GET /1.");
    reply(r, 200, "one");
    size_t more;
    assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)wire + used, used, &more), 0);
    assert_int_equal(more, 0); /* the body of the first is not out yet */
    pull(r, 100);
    assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)wire + used, used, &more), 0);
    assert_int_equal(more, used);
    assert_string_equal(r->log, "GET /1.GET /2.");
    rig_free(r);
}

static void test_h1_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *wire;
        const char *status;
    } cases[] = {
        {"GET / HTTP/1.1\n", " 400 "},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         " 400 "},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", " 400 "},
        {"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", " 400 "},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", " 400 "},
        {"GET / HTTP/1.1\r\n\r\n", " 400 "},
        {"GET / HTTP/2.0\r\n", " 505 "},
        {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", " 501 "},
        {"GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", " 417 "},
        {"GET / "
         "HTTP/"
         "1.1\r\n1:1\r\n2:2\r\n3:3\r\n4:4\r\n5:5\r\n6:6\r\n7:7\r\n8:8\r\n9:9\r\nA:a\r\nB:b\r\n",
         " 431 "},
        {"\r\n\r\n\r\n", " 400 "},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct rig *r = h1_rig();
        size_t used;
        assert_true(
            ltn_h1_feed(r->h1, (const uint8_t *)cases[i].wire, strlen(cases[i].wire), &used) < 0);
        pull(r, 100);
        assert_non_null(strstr((char *)r->out, cases[i].status));
        assert_non_null(strstr((char *)r->out, "connection: close"));
        assert_true(ltn_h1_closing(r->h1));
        assert_string_equal(r->log, "");
        assert_int_equal(
            ltn_h1_feed(r->h1, (const uint8_t *)"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, &used), 0);
        assert_int_equal(used, 0);
        rig_free(r);
    }
}

/* What the session answers by itself is whole: a JSON body of the length that is said. */
static void test_h1_own_answers(void **state)
{
    (void)state;
    static const int statuses[] = {400, 408, 414, 417, 431, 501, 503, 505};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(statuses); i++) {
        struct rig *r = h1_rig();
        ltn_h1_fail(r->h1, statuses[i]);
        pull(r, 100);
        const char *body = strstr((char *)r->out, "\r\n\r\n");
        const char *length = strstr((char *)r->out, "content-length: ");
        assert_non_null(body);
        assert_non_null(length);
        assert_int_equal(strtoul(length + strlen("content-length: "), NULL, 10), strlen(body + 4));
        assert_true(strncmp(body + 4, "{\"message\":\"", 12) == 0);
        bool retry = strstr((char *)r->out, "retry-after: ") != NULL;
        assert_int_equal(retry, statuses[i] == 503);
        assert_true(ltn_h1_closing(r->h1));
        rig_free(r);
    }
}

static void test_h1_continue_and_early_answer(void **state)
{
    (void)state;
    static const char wire[] =
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    size_t used;
    struct rig *r = h1_rig();
    assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)wire, sizeof(wire) - 1, &used), 0);
    pull(r, 100);
    assert_string_equal((char *)r->out, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)"ab", 2, &used), 0);
    assert_string_equal(r->log, "POST /+[ab].");
    rig_free(r);
    r = h1_rig();
    r->refuse = true;
    assert_int_equal(ltn_h1_feed(r->h1, (const uint8_t *)wire, sizeof(wire) - 1, &used), 0);
    pull(r, 100);
    assert_null(strstr((char *)r->out, "100 Continue"));
    assert_true(ltn_h1_closing(r->h1)); /* the body may or may not follow */
    rig_free(r);
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                              "\0\0\0\4\0\0\0\0\0";

static int feed(struct rig *r, const void *p, size_t n, uint64_t now_ns)
{
    int rc = 0;
    size_t used;
    for (; n > 0 && rc == 0; p += used, n -= used) {
        rc = ltn_h2_feed(r->h2, p, n, now_ns, &used);
    }
    return rc;
}

/* POST / without end, authority a */
static const uint8_t post[] = {0, 0, 6, 1, 4, 0, 0, 0, 1, 0x83, 0x86, 0x84, 0x41, 1, 'a'};

static void test_h2_exchange_every_cut(void **state)
{
    (void)state;
    uint8_t wire[200];
    size_t n = sizeof(preface) - 1;
    memcpy(wire, preface, n);
    memcpy(wire + n, post, sizeof(post));
    n += sizeof(post);
    memcpy(wire + n, "\0\0\3\0\1\0\0\0\1xyz", 12);
    n += 12;
    for (size_t cut = 1; cut < n; cut++) {
        struct rig *r = h2_rig();
        assert_int_equal(feed(r, wire, cut, 1), 0);
        assert_int_equal(feed(r, wire + cut, n - cut, 1), 0);
        assert_true(strncmp(r->log, "POST /+[", 8) == 0);
        assert_int_equal(r->log[strlen(r->log) - 1], '.');
        reply(r, 200, "answer");
        assert_int_equal(ltn_h2_unsent(r->h2), 1);
        pull(r, 5);
        assert_int_equal(ltn_h2_unsent(r->h2), 0);
        assert_true(has(r, "\0\0\6\0\1\0\0\0\1answer", 15));
        assert_int_equal(ltn_h2_streams(r->h2), 0);
        rig_free(r);
    }
}

static void test_h2_credit_only_when_given(void **state)
{
    (void)state;
    struct rig *r = h2_rig();
    uint8_t data[9 + 16384] = {0, 0x40, 0, 0, 0, 0, 0, 0, 1};
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, post, sizeof(post), 1), 0);
    pull(r, 1000);
    r->out_len = 0;
    assert_int_equal(feed(r, data, sizeof(data), 1), 0);
    assert_int_equal(feed(r, data, sizeof(data), 1), 0);
    pull(r, 1000);
    assert_int_equal(r->out_len, 0);
    ltn_h2_credit(r->h2, 1, 32768, true);
    pull(r, 1000);
    assert_true(has(r, "\0\0\4\10\0\0\0\0\1\0\0\x80\0", 13));
    assert_true(has(r, "\0\0\4\10\0\0\0\0\0\0\0\x80\0", 13));
    /* Without credit the window ends. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(feed(r, data, sizeof(data), 1), 0);
    }
    r->out_len = 0;
    int rc = feed(r, data, sizeof(data), 1);
    (void)rc;
    pull(r, 1000);
    assert_true(has(r, "\0\0\0\3", 4)); /* FLOW_CONTROL_ERROR */
    rig_free(r);
}

static void test_h2_early_answer_then_reset(void **state)
{
    (void)state;
    struct rig *r = h2_rig();
    r->refuse = true;
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, post, sizeof(post), 1), 0);
    pull(r, 1000);
    assert_true(has(r, "no", 2));
    assert_int_equal(ltn_h2_streams(r->h2), 1);
    r->out_len = 0;
    ltn_h2_tick(r->h2, 100 * LTN_NS_PER_MS);
    pull(r, 1000);
    assert_int_equal(r->out_len, 0);
    ltn_h2_tick(r->h2, 2 * LTN_NS_PER_S);
    pull(r, 1000);
    assert_true(has(r, "\0\0\4\3\0\0\0\0\1\0\0\0\0", 13)); /* RST_STREAM(NO_ERROR) */
    assert_int_equal(ltn_h2_streams(r->h2), 0);
    rig_free(r);
}

static void flood_with(const void *frame, size_t n, int count, bool expect)
{
    struct rig *r = h2_rig();
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    for (int i = 0; i < count && !ltn_h2_flooded(r->h2); i++) {
        int rc = feed(r, frame, n, 1);
        (void)rc;
        pull(r, 1000);
        r->out_len = ltn_h2_flooded(r->h2) ? r->out_len : 0;
    }
    assert_int_equal(ltn_h2_flooded(r->h2), expect);
    if (expect) {
        assert_true(has(r, "\0\0\0\x0b", 4)); /* ENHANCE_YOUR_CALM */
        assert_true(ltn_h2_done(r->h2));
    }
    rig_free(r);
}

static void test_h2_floods(void **state)
{
    (void)state;
    flood_with("\0\0\10\6\0\0\0\0\0\0\0\0\0\0\0\0\0", 17, 18, false);
    flood_with("\0\0\10\6\0\0\0\0\0\0\0\0\0\0\0\0\0", 17, 50, true); /* PING */
    flood_with("\0\0\0\4\0\0\0\0\0", 9, 50, true);                   /* SETTINGS */
    flood_with("\0\0\1\x30\0\0\0\0\0x", 10, 50, true);               /* unknown */
    flood_with("\0\0\5\2\0\0\0\0\1\0\0\0\0\1", 14, 50, true);        /* PRIORITY */
}

static const char ping[] = "\0\0\10\6\0\0\0\0\0abcdefgh";

static struct rig *ping_rig(void)
{
    struct ltn_h2_conf conf = h2_default;
    struct rig *r = calloc(1, sizeof(*r));
    conf.ping_interval_ns = 10 * LTN_NS_PER_S;
    conf.ping_strikes = 2;
    conf.spares = &r->spares;
    r->h2 = ltn_h2_new(&conf, &sink, r);
    assert_non_null(r->h2);
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    return r;
}

/* Pings in time are welcome for ever, early ones are strikes until something is answered. */
static void test_h2_keepalive(void **state)
{
    (void)state;
    uint64_t now_ns = LTN_NS_PER_S;
    struct rig *r = ping_rig();
    for (int i = 0; i < 100; i++) {
        now_ns += 10 * LTN_NS_PER_S;
        assert_int_equal(feed(r, ping, sizeof(ping) - 1, now_ns), 0);
        pull(r, 1000);
        assert_false(ltn_h2_flooded(r->h2));
    }
    r->out_len = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(feed(r, ping, sizeof(ping) - 1, now_ns += LTN_NS_PER_S), 0);
    }
    assert_false(ltn_h2_flooded(r->h2));
    assert_int_equal(feed(r, post, sizeof(post), now_ns), 0);
    assert_int_equal(feed(r, "\0\0\0\0\1\0\0\0\1", 9, now_ns), 0);
    reply(r, 200, "");
    pull(r, 1000); /* the strikes are gone */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(feed(r, ping, sizeof(ping) - 1, now_ns += LTN_NS_PER_S), 0);
    }
    assert_false(ltn_h2_flooded(r->h2));
    r->out_len = 0;
    assert_int_equal(feed(r, ping, sizeof(ping) - 1, now_ns += LTN_NS_PER_S), 0);
    assert_true(ltn_h2_flooded(r->h2));
    pull(r, 1000);
    assert_true(has(r, "\0\0\0\1\0\0\0\x0btoo_many_pings", 22)); /* GOAWAY, last stream 1 */
    assert_true(ltn_h2_done(r->h2));
    rig_free(r);
}

static void test_h2_continue(void **state)
{
    (void)state;
    static const uint8_t head[] = {0,    0,   29,  1,   4,   0,   0,   0,   1,   0x83, 0x86, 0x84,
                                   0x41, 1,   'a', 0,   6,   'e', 'x', 'p', 'e', 'c',  't',  12,
                                   '1',  '0', '0', '-', 'c', 'o', 'n', 't', 'i', 'n',  'u',  'e'};
    struct rig *r = h2_rig();
    uint8_t wire[sizeof(head)];
    memcpy(wire, head, sizeof(head));
    wire[2] = (uint8_t)(sizeof(head) - 9);
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, wire, sizeof(wire), 1), 0);
    pull(r, 1000);
    assert_true(has(r,
                    "\0\0\5\1\4\0\0\0\1\x48\x03"
                    "100",
                    14) ||
                has(r, "\1\4\0\0\0\1", 6)); /* HEADERS without END_STREAM */
    assert_int_equal(ltn_h2_streams(r->h2), 1);
    assert_int_equal(feed(r, "\0\0\1\0\1\0\0\0\1x", 10, 1), 0);
    reply(r, 200, "ok");
    pull(r, 1000);
    assert_true(has(r, "ok", 2));
    assert_int_equal(ltn_h2_streams(r->h2), 0);
    rig_free(r);
    r = h2_rig();
    r->refuse = true; /* the answer comes at once instead */
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, wire, sizeof(wire), 1), 0);
    pull(r, 1000);
    assert_true(has(r, "no", 2));
    rig_free(r);
}

/* Trailers are bounded as heads are. */
static void test_h2_trailer_bomb(void **state)
{
    (void)state;
    uint8_t block[9 + 4 + 100 + 60] = {0, 0, 0, 1, 5, 0, 0, 0, 1, 0x40, 1, 'x', 100};
    size_t n = 13;
    struct rig *r = h2_rig();
    memset(block + n, 'v', 100);
    n += 100;
    memset(block + n, 0xbe, 60); /* the entry once more, each */
    n += 60;
    block[2] = (uint8_t)(n - 9);
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, post, sizeof(post), 1), 0);
    pull(r, 1000);
    r->out_len = 0;
    assert_int_equal(feed(r, block, n, 1), 0);
    pull(r, 1000);
    assert_true(has(r, "\0\0\4\3\0\0\0\0\1", 9)); /* RST_STREAM */
    assert_string_equal(r->log, "POST /+!");
    rig_free(r);
}

static void test_h2_drain(void **state)
{
    (void)state;
    struct rig *r = h2_rig();
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, post, sizeof(post), 1), 0);
    ltn_h2_drain(r->h2);
    pull(r, 1000);
    assert_true(has(r, "\0\0\10\7\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0", 17));
    assert_true(has(r, "ltndrain", 8));
    r->out_len = 0;
    assert_int_equal(feed(r, "\0\0\10\6\1\0\0\0\0ltndrain", 17, 1), 0);
    pull(r, 1000);
    assert_true(has(r, "\0\0\10\7\0\0\0\0\0\0\0\0\1\0\0\0\0", 17)); /* the last stream is 1 */
    assert_false(ltn_h2_done(r->h2));
    assert_int_equal(feed(r, "\0\0\0\0\1\0\0\0\1", 9, 1), 0);
    reply(r, 200, "");
    pull(r, 1000);
    assert_true(ltn_h2_done(r->h2));
    rig_free(r);
}

static void test_h2_free_reports(void **state)
{
    (void)state;
    struct rig *r = h2_rig();
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    assert_int_equal(feed(r, post, sizeof(post), 1), 0);
    ltn_h2_free(r->h2);
    r->h2 = NULL;
    assert_string_equal(r->log, "POST /+!");
    rig_free(r);
}

/* Memory of what was turned away serves the next, which knows nothing of it. */
static void test_h2_turns_away(void **state)
{
    (void)state;
    static const uint8_t old[] = {0,    0,    13, 1,   4,    0, 0,   0,   1,   0x83, 0x86,
                                  0x84, 0x41, 1,  'a', 0x00, 3, 'o', 'l', 'd', 1,    '1'};
    uint8_t next[sizeof(post)];
    struct rig *r = h2_rig();
    memcpy(next, post, sizeof(next));
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    r->away = true;
    for (uint8_t id = 1; id < 41; id += 2) {
        uint8_t head[sizeof(old)];
        memcpy(head, old, sizeof(head));
        head[8] = id;
        assert_int_equal(feed(r, head, sizeof(head), 1), 0);
        pull(r, 1000);
        assert_int_equal(ltn_h2_streams(r->h2), 0);
    }
    assert_int_equal(r->spares.stream_count, LTN_H2_SPARE_STREAMS > 0 ? 1 : 0);
    assert_non_null(r->spares.head);
    r->log[0] = '\0';
    r->away = false;
    next[8] = 41;
    assert_int_equal(feed(r, next, sizeof(next), 1), 0);
    assert_string_equal(r->log, "POST /+");
    assert_int_equal(r->spares.stream_count, 0);
    assert_null(r->spares.head);
    rig_free(r);
}

/* Clients that did not send all take their refused requests back; that is no rapid reset. */
static void test_h2_refused_requests_are_taken_back(void **state)
{
    (void)state;
    struct rig *r = h2_rig();
    assert_int_equal(feed(r, preface, sizeof(preface) - 1, 1), 0);
    r->away = true;
    for (uint32_t id = 1; id < 100000; id += 2) {
        uint8_t head[sizeof(post)], reset[13] = {0, 0, 4, 3};
        memcpy(head, post, sizeof(head));
        for (int i = 0; i < 4; i++) {
            head[5 + i] = reset[5 + i] = (uint8_t)(id >> (24 - 8 * i));
        }
        r->log[0] = '\0';
        r->out_len = 0;
        assert_int_equal(feed(r, head, sizeof(head), 1), 0);
        pull(r, 1000);
        assert_int_equal(feed(r, reset, sizeof(reset), 1), 0);
        assert_string_equal(r->log, "-");
        assert_false(ltn_h2_flooded(r->h2) || ltn_h2_failed(r->h2));
    }
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h1_every_cut),
        cmocka_unit_test(test_h1_pipelined_waits),
        cmocka_unit_test(test_h1_refusals),
        cmocka_unit_test(test_h1_own_answers),
        cmocka_unit_test(test_h1_continue_and_early_answer),
        cmocka_unit_test(test_h2_exchange_every_cut),
        cmocka_unit_test(test_h2_credit_only_when_given),
        cmocka_unit_test(test_h2_early_answer_then_reset),
        cmocka_unit_test(test_h2_floods),
        cmocka_unit_test(test_h2_keepalive),
        cmocka_unit_test(test_h2_continue),
        cmocka_unit_test(test_h2_trailer_bomb),
        cmocka_unit_test(test_h2_drain),
        cmocka_unit_test(test_h2_free_reports),
        cmocka_unit_test(test_h2_turns_away),
        cmocka_unit_test(test_h2_refused_requests_are_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
