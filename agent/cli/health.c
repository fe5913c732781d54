/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/health.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/err.h"

#define MINUTE_NS (60 * LTN_NS_PER_S)

struct lines {
    struct ltn_health_line *out;
    size_t n;
};

static void say(struct lines *l, enum ltn_log_level level, const char *format, ...)
    ltn_printf(3, 4);
static void say(struct lines *l, enum ltn_log_level level, const char *format, ...)
{
    struct ltn_health_line *line = &l->out[l->n++];
    va_list args;
    line->level = level;
    va_start(args, format);
    (void)vsnprintf(line->text, sizeof(line->text), format, args);
    va_end(args);
}

/* Sets when the same may be said again, at the earliest. */
static void told(struct ltn_health_state *s, uint64_t now_ns)
{
    static const uint64_t pauses[] = {MINUTE_NS, 5 * MINUTE_NS, 30 * MINUTE_NS};
    s->next_ns = now_ns + pauses[s->repeats];
    s->repeats += s->repeats + 1 < LTN_ARRAY_SIZE(pauses);
    s->told = true;
}

enum change { NOTHING, BEGAN, LASTS, ENDED };

/* What flaps is told of at most once a minute. *ret_for_s: since when, at LASTS and ENDED. */
static enum change watch(struct ltn_health_state *s, bool bad, uint64_t now_ns, uint64_t *ret_for_s)
{
    *ret_for_s = s->since_ns != 0 ? (now_ns - s->since_ns) / LTN_NS_PER_S : 0;
    if (!bad) {
        bool was_told = s->told;
        s->since_ns = 0;
        s->told = false;
        s->repeats = 0;
        return was_told ? ENDED : NOTHING;
    }
    if (s->since_ns == 0) {
        s->since_ns = now_ns;
    }
    if (now_ns < s->next_ns) {
        return NOTHING;
    }
    enum change c = s->told ? LASTS : BEGAN;
    told(s, now_ns);
    return c;
}

/* How much a count grew since it was spoken of last; 0: nothing to say now. */
static uint64_t grown(struct ltn_health_state *s, uint64_t count, uint64_t now_ns)
{
    uint64_t more = count - s->count;
    if (more == 0 || now_ns < s->next_ns) {
        return 0;
    }
    s->count = count;
    told(s, now_ns);
    return more;
}

static const char *push_advice(const struct ltn_push_stats *p)
{
    if (strstr(p->last_error, "client certificate") != NULL) {
        return "give it with --collector-cert-file and --collector-key-file, and https:// in "
               "--collector";
    }
    if (p->wrong_credentials) {
        return "the collector does not accept this agent's token; give the right one with "
               "--token-file";
    }
    if (strstr(p->last_error, "TLS") != NULL || strstr(p->last_error, "SSL") != NULL) {
        return "do --collector-ca-file and the certificates on both sides fit together? "
               "docs/tls.md "
               "has a line for each reason";
    }
    if (strstr(p->last_error, "resolve") != NULL) {
        return "is the host in --collector right, and does DNS know it?";
    }
    return "does the collector run, and is --collector its OTLP address?";
}

/* What is refused for good because it was sent to something else. */
static const char *refusal_advice(const char *refusal)
{
    bool elsewhere = strstr(refusal, "unknown path") != NULL || strstr(refusal, "404") != NULL ||
                     strstr(refusal, "405") != NULL;
    return elsewhere ? "; is --collector its OTLP address (usually port 4317)?" : "";
}

static void look_push(struct ltn_health *h, uint64_t now_ns, const struct ltn_push_stats *p,
                      const struct ltn_record_stats *r, struct lines *l)
{
    uint64_t for_s;
    switch (watch(&h->push, p->backoff_ns > 0, now_ns, &for_s)) {
    case BEGAN:
        say(l, LTN_LOG_WARN, "cannot push to the collector: %s; %s (data waits in the outbox)",
            p->last_error, push_advice(p));
        break;
    case LASTS:
        say(l, LTN_LOG_WARN,
            "cannot push to the collector for %" PRIu64 " s now: %s; %s (%" PRIu64
            " requests, %" PRIu64 " bytes wait)",
            for_s, p->last_error, push_advice(p), r->outbox_rows, r->outbox_bytes);
        break;
    case ENDED:
        say(l, LTN_LOG_INFO,
            "pushing to the collector works again after %" PRIu64 " s; %" PRIu64
            " requests, %" PRIu64 " bytes wait",
            for_s, r->outbox_rows, r->outbox_bytes);
        break;
    case NOTHING:
        break;
    }
    uint64_t more = grown(&h->refused, p->refused, now_ns);
    if (more > 0) {
        say(l, LTN_LOG_WARN,
            "the collector refused %" PRIu64 " more requests for good, they are dropped: %s%s",
            more, p->last_refusal, refusal_advice(p->last_refusal));
    }
    more = grown(&h->rejected, p->rejected_points, now_ns);
    if (more > 0) {
        say(l, LTN_LOG_WARN,
            "the collector did not take %" PRIu64 " more data points of requests: %s", more,
            p->last_rejection);
    }
    uint64_t unsent = r->outbox_dropped_age + r->outbox_dropped_bytes_limit;
    more = grown(&h->unsent, unsent, now_ns);
    if (more > 0) {
        say(l, LTN_LOG_WARN,
            "%" PRIu64 " more requests left the outbox unsent: it holds only so much, for so long",
            more);
    }
}

static uint64_t lost(const struct ltn_record_flow *f)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < LTN_RECORD_DROPS; i++) {
        sum += i == LTN_RECORD_DROP_DISABLED ? 0 : f->dropped[i];
    }
    return sum;
}

static void look_record(struct ltn_health *h, uint64_t now_ns, const struct ltn_record_stats *r,
                        struct lines *l)
{
    uint64_t for_s;
    switch (watch(&h->record, r->degraded, now_ns, &for_s)) {
    case BEGAN:
        say(l, LTN_LOG_WARN,
            "cannot write to the database: %s; make room or mend its folder (the newest data is "
            "kept in memory, the oldest is dropped)",
            ltn_err_str(r->failed_rc));
        break;
    case LASTS:
        say(l, LTN_LOG_WARN,
            "cannot write to the database for %" PRIu64 " s now: %s (%" PRIu64
            " windows and %" PRIu64 " records of calls lost so far)",
            for_s, ltn_err_str(r->failed_rc), lost(&r->windows), lost(&r->calls));
        break;
    case ENDED:
        say(l, LTN_LOG_INFO,
            "writing to the database works again after %" PRIu64 " s (%" PRIu64
            " windows and %" PRIu64 " records of calls lost so far)",
            for_s, lost(&r->windows), lost(&r->calls));
        break;
    case NOTHING:
        break;
    }
    if (r->replaced_files > h->replaced_files) {
        say(l, LTN_LOG_WARN,
            "the database was damaged or deleted while in use; a new one was begun");
        h->replaced_files = r->replaced_files;
    }
}

bool ltn_health_impossible(struct ltn_health *h, uint64_t now_ns, uint64_t count, const char *op,
                           struct ltn_health_line *out)
{
    struct lines l = {.out = out};
    uint64_t more = grown(&h->impossible, count, now_ns);
    if (more > 0) {
        say(&l, LTN_LOG_WARN,
            "%" PRIu64 " more calls succeeded with arguments that cannot be, most of %s: this "
            "version of the library passes them in another way; its bytes and directions are not "
            "to be trusted (counts and times are); please report it with the library's version",
            more, op);
    }
    return l.n > 0;
}

size_t ltn_health_look(struct ltn_health *h, uint64_t now_ns, const struct ltn_push_stats *push,
                       const struct ltn_record_stats *record,
                       struct ltn_health_line out[LTN_HEALTH_LINES])
{
    struct lines l = {.out = out};
    look_record(h, now_ns, record, &l);
    if (push != NULL) {
        look_push(h, now_ns, push, record, &l);
    }
    return l.n;
}

size_t ltn_health_silence(struct ltn_health *h, uint64_t now_ns, const struct ltn_silence_stats *s,
                          struct ltn_health_line out[LTN_HEALTH_LINES])
{
    struct lines l = {.out = out};
    const struct ltn_silent *f = &s->first;
    uint64_t for_s;
    switch (watch(&h->silent, s->silent_now > 0, now_ns, &for_s)) {
    case BEGAN:
    case LASTS:
        say(&l, LTN_LOG_WARN,
            "%u processes run code of a library that carries probes, and no call of theirs is "
            "seen: process %d (%s), %u %% of a CPU in %s, %" PRIu64
            " windows without a call. What they do there is not recorded; `lanterne check` tells "
            "whether probes fire here, and else it is a function that is not traced",
            s->silent_now, (int)f->pid, f->comm, f->cpu_pct, f->path, f->quiet_windows);
        break;
    case ENDED:
        say(&l, LTN_LOG_INFO, "no process uses a library with probes unseen any more");
        break;
    case NOTHING:
        break;
    }
    return l.n;
}
