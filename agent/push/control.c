/* SPDX-License-Identifier: Apache-2.0 */
#include "push/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "control/message.h"
#include "push/answer.h"
#include "push/target.h"

#define FIRST_BACKOFF_NS   LTN_NS_PER_S
#define LONGEST_BACKOFF_NS (60 * LTN_NS_PER_S)
#define NO_SERVICE_NS      (600 * LTN_NS_PER_S) /* the collector does not know the service */
#define GOOD_SESSION_NS    (30 * LTN_NS_PER_S)  /* the next failure begins anew */
#define PING_NS            (10 * LTN_NS_PER_S)
#define LONGEST_PING_NS    (30 * LTN_NS_PER_S)
#define FIRST_PING_NS      (200 * LTN_NS_PER_MS) /* until the clocks are known */
#define FIRST_PINGS        4
#define SILENCE_PINGS      3                   /* intervals without a word: the collector is gone */
#define CONNECT_NS         (3 * LTN_NS_PER_S)  /* a stop waits for it */
#define ANSWER_WATERMARK   ((size_t)256 << 10) /* answers are fetched below it */
#define OUT_BYTES          ((size_t)3 << 20)
#define MAX_VERDICTS       32
#define MAX_TOKEN_BYTES    4096
#define SAMPLES            8
#define GRPC_UNIMPLEMENTED 12
#define GRPC_EXHAUSTED     8

struct sample {
    int64_t offset_ns;
    uint64_t round_trip_ns; /* 0: empty */
};

struct ltn_agent_control {
    char node[256], cluster[256], instance[64], boot_id[64];
    uint64_t started_unix_ns;
    uint64_t first_backoff_ns, longest_backoff_ns, ping_ns;
    char token_file[LTN_PUSH_ENDPOINT_BYTES];
    struct ltn_push_sender sender; /* address, headers and client */
    struct ltn_answerer *answerer;
    int wake_fd;
    pthread_t thread;
    bool runs;
    atomic_bool stop;
    _Atomic uint64_t cut_ns; /* when stopping: connecting ends then; 0: not stopping */

    /* the session; control thread */
    struct ltn_grpc_stream *stream;
    bool welcome, broken;
    uint64_t ping_interval_ns;
    uint64_t heard_ns, next_ping_ns, sequence, pings_sent;
    uint64_t ping_unix_ns; /* t1 of the one under way */
    struct sample samples[SAMPLES];
    size_t sample_at;

    pthread_mutex_t lock; /* what others may read */
    struct ltn_agent_control_stats stats;
    struct ltn_agent_verdict verdicts[MAX_VERDICTS]; /* newest first */
    size_t verdict_n;
};

#define COUNT(c, name)                                                                             \
    do {                                                                                           \
        pthread_mutex_lock(&(c)->lock);                                                            \
        (c)->stats.name++;                                                                         \
        pthread_mutex_unlock(&(c)->lock);                                                          \
    } while (0)

static void say_error(struct ltn_agent_control *c, const char *text)
{
    pthread_mutex_lock(&c->lock);
    ltn_text_clean(c->stats.last_error, sizeof(c->stats.last_error), text, strlen(text));
    pthread_mutex_unlock(&c->lock);
}

/* ---- to the collector ---- */

/* Sends what is in b. A stream that takes no more is given up. */
static void send_message(struct ltn_agent_control *c, struct ltn_buf *b)
{
    int rc = ltn_buf_error(b);
    if (rc == 0) {
        rc = ltn_grpc_stream_send(c->stream, ltn_buf_str(b), b->len);
    }
    c->broken = c->broken || rc != 0;
    ltn_buf_done(b);
}

static void send_hello(struct ltn_agent_control *c)
{
    struct ltn_buf b;
    const struct ltn_control_hello m = {.node = ltn_control_str(c->node),
                                        .cluster = ltn_control_str(c->cluster),
                                        .version = ltn_control_str(LTN_VERSION),
                                        .boot_id = ltn_control_str(c->boot_id),
                                        .instance = ltn_control_str(c->instance),
                                        .agent_start_unix_ns = c->started_unix_ns};
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_hello(&b, &m);
    send_message(c, &b);
}

/* The exchange with the shortest way there and back knows the offset best. */
static const struct sample *best_sample(const struct ltn_agent_control *c)
{
    static const struct sample none;
    const struct sample *best = &none;
    for (size_t i = 0; i < SAMPLES; i++) {
        const struct sample *s = &c->samples[i];
        if (s->round_trip_ns != 0 &&
            (best->round_trip_ns == 0 || s->round_trip_ns < best->round_trip_ns)) {
            best = s;
        }
    }
    return best;
}

static void send_ping(struct ltn_agent_control *c, uint64_t now_ns)
{
    struct ltn_buf b;
    const struct sample *best = best_sample(c);
    c->ping_unix_ns = ltn_now_unix_ns();
    const struct ltn_control_ping m = {.sequence = ++c->sequence,
                                       .t1_unix_ns = c->ping_unix_ns,
                                       .last_offset_ns = best->offset_ns,
                                       .last_round_trip_ns = best->round_trip_ns};
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_ping(&b, &m);
    send_message(c, &b);
    c->pings_sent++;
    c->next_ping_ns = now_ns + (c->pings_sent < FIRST_PINGS ? FIRST_PING_NS : c->ping_interval_ns);
}

static void send_refusal(struct ltn_agent_control *c, uint64_t id)
{
    struct ltn_buf b;
    const struct ltn_control_end m = {
        .id = id,
        .code = GRPC_EXHAUSTED,
        .message = ltn_control_str("too many queries wait on this node"),
    };
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_end(&b, &m);
    send_message(c, &b);
}

/* Answers go out as the connection takes them; the rest waits in their thread. */
static void send_answers(struct ltn_agent_control *c)
{
    while (!c->broken && ltn_grpc_stream_waiting(c->stream) < ANSWER_WATERMARK) {
        struct ltn_answer *m = ltn_answerer_next(c->answerer);
        if (m == NULL) {
            return;
        }
        c->broken = ltn_grpc_stream_send(c->stream, m->bytes, m->n) != 0;
        pthread_mutex_lock(&c->lock);
        c->stats.pages += m->end ? 0 : 1;
        c->stats.queries_failed += m->end && m->failed ? 1 : 0;
        pthread_mutex_unlock(&c->lock);
        free(m);
    }
}

/* ---- from the collector ---- */

static void on_welcome(struct ltn_agent_control *c, const struct ltn_control_welcome *m)
{
    char name[128], version[48];
    if (c->ping_ns == 0 && m->clock_interval_ns >= LTN_NS_PER_S) {
        c->ping_interval_ns =
            m->clock_interval_ns < LONGEST_PING_NS ? m->clock_interval_ns : LONGEST_PING_NS;
    }
    if (c->welcome) {
        return;
    }
    c->welcome = true;
    ltn_text_clean(name, sizeof(name), m->collector.p, m->collector.n);
    ltn_text_clean(version, sizeof(version), m->version.p, m->version.n);
    ltn_log_info("attached to collector %s %s at %s", name, version, c->sender.address);
    pthread_mutex_lock(&c->lock);
    c->stats.attached = true;
    c->stats.attaches++;
    c->stats.last_error[0] = '\0';
    pthread_mutex_unlock(&c->lock);
}

static void on_pong(struct ltn_agent_control *c, const struct ltn_control_pong *m)
{
    uint64_t t4 = ltn_now_unix_ns();
    if (m->sequence != c->sequence || m->t1_unix_ns != c->ping_unix_ns || c->ping_unix_ns == 0) {
        return; /* an answer to nothing, or too late */
    }
    int64_t there = (int64_t)(m->t2_unix_ns - m->t1_unix_ns);
    int64_t back = (int64_t)(m->t3_unix_ns - t4);
    int64_t round = (int64_t)(t4 - m->t1_unix_ns) - (int64_t)(m->t3_unix_ns - m->t2_unix_ns);
    c->ping_unix_ns = 0;
    if (round < 0 || round > (int64_t)(60 * LTN_NS_PER_S)) {
        return; /* a clock was set meanwhile */
    }
    c->samples[c->sample_at] = (struct sample){there / 2 + back / 2, (uint64_t)round + 1};
    c->sample_at = (c->sample_at + 1) % SAMPLES;
    const struct sample *best = best_sample(c);
    pthread_mutex_lock(&c->lock);
    c->stats.pings++;
    c->stats.clock_offset_ns = best->offset_ns;
    c->stats.round_trip_ns = best->round_trip_ns;
    pthread_mutex_unlock(&c->lock);
}

static void on_query(struct ltn_agent_control *c, const struct ltn_control_query *m)
{
    COUNT(c, queries);
    if (ltn_answerer_ask(c->answerer, m) != 0) {
        COUNT(c, queries_refused);
        send_refusal(c, m->id);
    }
}

static enum ltn_agent_verdict_state state_of(uint32_t state)
{
    switch (state) {
    case LTN_CONTROL_STATE_CLEAR:
        return LTN_AGENT_VERDICT_CLEAR;
    case LTN_CONTROL_STATE_OPEN:
        return LTN_AGENT_VERDICT_OPEN;
    case LTN_CONTROL_STATE_CANNOT_TELL:
        return LTN_AGENT_VERDICT_CANNOT_TELL;
    default:
        return LTN_AGENT_VERDICT_UNKNOWN;
    }
}

static void say_verdict(const struct ltn_agent_verdict *v)
{
    if (v->state == LTN_AGENT_VERDICT_OPEN) {
        ltn_log_warn("the collector says: rank %u of job %s on this node is a straggler, %+.0f %% "
                     "against its peers, cause %s",
                     v->rank, v->job, 100 * v->effect, v->cause);
    } else if (v->state == LTN_AGENT_VERDICT_CLEAR) {
        ltn_log_info("the collector says: rank %u of job %s on this node is no straggler any more",
                     v->rank, v->job);
    }
}

/* Puts it in front; what it replaces, or the oldest, goes. True when its state is news. */
static bool keep_verdict(struct ltn_agent_control *c, const struct ltn_agent_verdict *v)
{
    bool news = true;
    pthread_mutex_lock(&c->lock);
    size_t at = 0;
    while (at < c->verdict_n && strcmp(c->verdicts[at].id, v->id) != 0) {
        at++;
    }
    if (at < c->verdict_n) {
        news = c->verdicts[at].state != v->state;
    } else if (c->verdict_n < MAX_VERDICTS) {
        c->verdict_n++;
    } else {
        at = MAX_VERDICTS - 1;
    }
    memmove(&c->verdicts[1], &c->verdicts[0], at * sizeof(c->verdicts[0]));
    c->verdicts[0] = *v;
    c->stats.verdicts++;
    pthread_mutex_unlock(&c->lock);
    return news;
}

static void on_verdict(struct ltn_agent_control *c, const struct ltn_control_verdict *m)
{
    struct ltn_agent_verdict v = {.rank = m->rank,
                                  .state = state_of(m->state),
                                  .since_unix_ns = m->since_unix_ns,
                                  .received_unix_ns = ltn_now_unix_ns(),
                                  .effect = m->effect,
                                  .explained_share = m->explained_share};
    struct ltn_buf b;
    ltn_text_clean(v.id, sizeof(v.id), m->id.p, m->id.n);
    ltn_text_clean(v.job, sizeof(v.job), m->job.p, m->job.n);
    ltn_text_clean(v.cause, sizeof(v.cause), m->cause.p, m->cause.n);
    if (keep_verdict(c, &v)) {
        say_verdict(&v);
    }
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_ack(&b, m->id);
    send_message(c, &b);
}

static void on_message(void *arg, const uint8_t *p, size_t n)
{
    struct ltn_agent_control *c = arg;
    struct ltn_control_message m;
    c->heard_ns = ltn_now_mono_ns();
    if (ltn_control_read_collector(p, n, &m) != 0) {
        COUNT(c, malformed);
        say_error(c, "a message of the collector cannot be read");
        c->broken = true;
        return;
    }
    switch (m.kind) {
    case LTN_CONTROL_WELCOME:
        on_welcome(c, &m.welcome);
        break;
    case LTN_CONTROL_CLOCK_PONG:
        on_pong(c, &m.pong);
        break;
    case LTN_CONTROL_QUERY:
        on_query(c, &m.query);
        break;
    case LTN_CONTROL_QUERY_CANCEL:
        if (ltn_answerer_cancel(c->answerer, m.cancel_id)) {
            COUNT(c, queries_cancelled);
        }
        break;
    case LTN_CONTROL_VERDICT:
        on_verdict(c, &m.verdict);
        break;
    default: /* Drain: the end of the stream follows. Thresholds are not used here yet. */
        break;
    }
}

/* ---- the session ---- */

static void read_token(const struct ltn_agent_control *c, char *out, size_t size)
{
    out[0] = '\0';
    if (c->token_file[0] != '\0' && ltn_file_read_head(c->token_file, out, size) > 0) {
        out[strcspn(out, " \t\r\n")] = '\0';
    }
}

static int open_stream(struct ltn_agent_control *c, struct ltn_errinfo *info)
{
    struct ltn_grpc_field fields[LTN_PUSH_MAX_HEADERS + 1];
    char token[MAX_TOKEN_BYTES];
    char bearer[MAX_TOKEN_BYTES + 8];
    size_t n = 0;
    for (size_t i = 0; i < c->sender.header_count; i++) {
        fields[n++] = (struct ltn_grpc_field){.name = c->sender.headers[i].name,
                                              .value = c->sender.headers[i].value};
    }
    read_token(c, token, sizeof(token));
    if (token[0] != '\0') {
        (void)snprintf(bearer, sizeof(bearer), "Bearer %s", token);
        fields[n++] = (struct ltn_grpc_field){.name = "authorization", .value = bearer};
    }
    const struct ltn_grpc_stream_conf conf = {.path = LTN_CONTROL_METHOD,
                                              .timeout_ns = CONNECT_NS,
                                              .cut_ns = &c->cut_ns,
                                              .max_in_bytes = LTN_CONTROL_MESSAGE_BYTES,
                                              .max_out_bytes = OUT_BYTES,
                                              .metadata = fields,
                                              .metadata_count = n,
                                              .message = on_message,
                                              .arg = c};
    int rc = ltn_grpc_stream_open(c->sender.grpc_client, &conf, &c->stream, info);
    explicit_bzero(token, sizeof(token));
    explicit_bzero(bearer, sizeof(bearer));
    return rc;
}

static int ms_until(uint64_t due_ns, uint64_t now_ns)
{
    return now_ns >= due_ns ? 0 : (int)((due_ns - now_ns) / LTN_NS_PER_MS + 1);
}

static void clear_wake(const struct ltn_agent_control *c)
{
    uint64_t v;
    (void)!read(c->wake_fd, &v, sizeof(v));
}

/* Runs the stream to its end. True when it ended because the collector asked to go elsewhere. */
static bool run_session(struct ltn_agent_control *c)
{
    send_hello(c);
    while (!atomic_load(&c->stop) && !c->broken) {
        uint64_t now_ns = ltn_now_mono_ns();
        if (now_ns >= c->next_ping_ns) {
            send_ping(c, now_ns);
        }
        if (now_ns - c->heard_ns > SILENCE_PINGS * c->ping_interval_ns && now_ns > c->heard_ns) {
            say_error(c, "the collector is silent");
            return false;
        }
        if (ltn_grpc_stream_run(c->stream, c->wake_fd, ms_until(c->next_ping_ns, now_ns)) != 0) {
            return false;
        }
        clear_wake(c);
        send_answers(c);
        if (ltn_grpc_stream_leaving(c->stream) && ltn_answerer_idle(c->answerer) &&
            ltn_grpc_stream_waiting(c->stream) == 0) {
            return true;
        }
    }
    return false;
}

static void begin_session(struct ltn_agent_control *c)
{
    c->welcome = false;
    c->broken = false;
    c->ping_interval_ns = c->ping_ns != 0 ? c->ping_ns : PING_NS;
    c->heard_ns = ltn_now_mono_ns();
    c->next_ping_ns = c->heard_ns;
    c->pings_sent = 0;
    c->ping_unix_ns = 0;
}

/* One stream from open to close. Returns the gRPC status it ended with, -1 when another should be
 * opened at once. */
static int attach_once(struct ltn_agent_control *c)
{
    struct ltn_errinfo info = {0};
    struct ltn_grpc_result result;
    begin_session(c);
    if (open_stream(c, &info) != 0) {
        say_error(c, info.msg);
        return ltn_err_grpc(LTN_ERR_UNAVAILABLE);
    }
    bool leaving = run_session(c);
    ltn_grpc_stream_result(c->stream, &result);
    if (!c->broken && !leaving && result.message[0] != '\0' && !atomic_load(&c->stop)) {
        say_error(c, result.message);
    }
    int status = leaving ? -1 : result.status;
    size_t taken_back = ltn_answerer_cancel_all(c->answerer);
    ltn_grpc_stream_close(c->stream);
    c->stream = NULL;
    pthread_mutex_lock(&c->lock);
    c->stats.queries_cancelled += taken_back;
    c->stats.attached = false;
    c->stats.failures += leaving ? 0 : 1;
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Half of it for sure, the other half by chance: agents do not come back all at once. */
static uint64_t jitter(uint64_t ns)
{
    uint32_t r = 0;
    (void)!getrandom(&r, sizeof(r), GRND_NONBLOCK);
    return ns / 2 + (uint64_t)((double)(ns / 2) * ((double)r / UINT32_MAX));
}

static void pause_for(struct ltn_agent_control *c, uint64_t ns)
{
    uint64_t end_ns = ltn_now_mono_ns() + ns;
    while (!atomic_load(&c->stop)) {
        uint64_t now_ns = ltn_now_mono_ns();
        struct pollfd p = {.fd = c->wake_fd, .events = POLLIN};
        if (now_ns >= end_ns) {
            return;
        }
        (void)poll(&p, 1, ms_until(end_ns, now_ns));
        clear_wake(c);
    }
}

static void *control_main(void *arg)
{
    struct ltn_agent_control *c = arg;
    uint64_t backoff_ns = c->first_backoff_ns;
    (void)pthread_setname_np(pthread_self(), "control");
    while (!atomic_load(&c->stop)) {
        uint64_t began_ns = ltn_now_mono_ns();
        int status = attach_once(c);
        bool good = c->welcome && ltn_now_mono_ns() - began_ns > GOOD_SESSION_NS;
        backoff_ns = good ? c->first_backoff_ns : backoff_ns;
        if (atomic_load(&c->stop)) {
            break;
        }
        if (status == GRPC_UNIMPLEMENTED) {
            ltn_log_info("%s has no control service: no queries and verdicts by that way",
                         c->sender.address);
            pause_for(c, jitter(NO_SERVICE_NS));
            continue;
        }
        if (c->welcome && status >= 0) {
            struct ltn_agent_control_stats now;
            ltn_agent_control_stats(c, &now);
            ltn_log_info("stream to the collector ended: %s", now.last_error);
        }
        pause_for(c, jitter(status < 0 ? c->first_backoff_ns : backoff_ns));
        if (status >= 0 && !good) {
            backoff_ns =
                backoff_ns * 2 < c->longest_backoff_ns ? backoff_ns * 2 : c->longest_backoff_ns;
        }
    }
    return NULL;
}

/* ---- life ---- */

static int copy_conf(struct ltn_agent_control *c, const struct ltn_agent_control_conf *conf,
                     const struct ltn_push_conf *push, struct ltn_errinfo *info)
{
    const struct ltn_push_target *from =
        push->metrics.endpoint[0] != '\0' ? &push->metrics : &push->logs;
    struct ltn_push_target t = *from;
    (void)ltn_copy_str(c->node, sizeof(c->node), conf->node);
    (void)ltn_copy_str(c->cluster, sizeof(c->cluster), conf->cluster != NULL ? conf->cluster : "");
    (void)ltn_copy_str(c->instance, sizeof(c->instance),
                       conf->instance != NULL ? conf->instance : "");
    (void)ltn_copy_str(c->token_file, sizeof(c->token_file), push->token_file);
    if (ltn_file_read_head("/proc/sys/kernel/random/boot_id", c->boot_id, sizeof(c->boot_id)) > 0) {
        c->boot_id[strcspn(c->boot_id, "\n")] = '\0';
    }
    c->started_unix_ns = ltn_now_unix_ns();
    c->first_backoff_ns = conf->first_backoff_ns != 0 ? conf->first_backoff_ns : FIRST_BACKOFF_NS;
    c->longest_backoff_ns =
        conf->longest_backoff_ns != 0 ? conf->longest_backoff_ns : LONGEST_BACKOFF_NS;
    c->ping_ns = conf->ping_interval_ns;
    /* What is cleartext for HTTP stays so. */
    t.insecure = t.insecure || !ltn_push_over_grpc(&t);
    t.protocol = LTN_PUSH_GRPC; /* the same port speaks both */
    int rc = ltn_push_sender_init(&c->sender, &t, LTN_RECORD_METRICS, info);
    if (rc == 0 && !c->sender.enabled) {
        rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "no collector given");
    }
    return rc;
}

int ltn_agent_control_open(const struct ltn_agent_control_conf *conf,
                           const struct ltn_push_conf *push, struct ltn_agent_control **ret_control,
                           struct ltn_errinfo *info)
{
    struct ltn_agent_control *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    pthread_mutex_init(&c->lock, NULL);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = c->wake_fd < 0 ? ltn_errinfo_set(info, -errno, "eventfd: %s", ltn_err_str(-errno)) : 0;
    if (rc == 0) {
        rc = copy_conf(c, conf, push, info);
    }
    if (rc == 0) {
        rc = ltn_answerer_new(conf->db_path, c->wake_fd, &c->answerer);
        rc = rc == 0 ? 0 : ltn_errinfo_set(info, rc, "out of memory");
    }
    if (rc != 0) {
        ltn_agent_control_close(c);
        return rc;
    }
    *ret_control = c;
    return 0;
}

int ltn_agent_control_start(struct ltn_agent_control *c)
{
    int rc = ltn_answerer_start(c->answerer);
    if (rc == 0) {
        rc = -pthread_create(&c->thread, NULL, control_main, c);
        c->runs = rc == 0;
    }
    return rc;
}

void ltn_agent_control_close(struct ltn_agent_control *c)
{
    if (c == NULL) {
        return;
    }
    if (c->runs) {
        const uint64_t one = 1;
        atomic_store(&c->cut_ns, ltn_now_mono_ns());
        atomic_store(&c->stop, true);
        (void)!write(c->wake_fd, &one, sizeof(one));
        (void)pthread_join(c->thread, NULL);
    }
    ltn_answerer_free(c->answerer);
    ltn_push_sender_done(&c->sender);
    if (c->wake_fd >= 0) {
        (void)close(c->wake_fd);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

size_t ltn_agent_control_verdicts(struct ltn_agent_control *c, struct ltn_agent_verdict *out,
                                  size_t max)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->verdict_n < max ? c->verdict_n : max;
    memcpy(out, c->verdicts, n * sizeof(out[0]));
    pthread_mutex_unlock(&c->lock);
    return n;
}

void ltn_agent_control_stats(struct ltn_agent_control *c, struct ltn_agent_control_stats *ret)
{
    uint64_t dropped = ltn_answerer_dropped(c->answerer);
    pthread_mutex_lock(&c->lock);
    *ret = c->stats;
    pthread_mutex_unlock(&c->lock);
    ret->pages_dropped = dropped;
}
