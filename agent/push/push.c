/* SPDX-License-Identifier: Apache-2.0 */
#include "push/push.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "push/target.h"
#include "sql/db.h"

#define DEFAULT_FIRST_NS   LTN_NS_PER_S
#define DEFAULT_LONGEST_NS (30 * LTN_NS_PER_S)
#define DEFAULT_BACKFILL   10
#define DEFAULT_FLUSH_NS   (2 * LTN_NS_PER_S)
#define IDLE_NS            LTN_NS_PER_S
#define MAX_ROW_BYTES      (64U << 20)
#define MAX_TOKEN_BYTES    4096
/* The collector's wish is followed up to here. */
#define LONGEST_WISH_NS (300 * LTN_NS_PER_S)

struct ltn_push {
    struct ltn_push_conf conf;
    struct ltn_record *record;
    struct ltn_push_sender senders[2]; /* metrics, logs */
    int stop_fd;
    _Atomic bool stopping;
    _Atomic uint64_t cut_ns; /* when stopping: all calls end then; 0: not stopping */
    bool started;
    pthread_t thread;

    /* Push thread only. */
    struct ltn_db *db;
    uint64_t db_replaced; /* count of replaced files when db was opened */
    bool positioned;
    int64_t fresh_cursor; /* newest row dealt with as fresh */
    int64_t backlog_cursor;
    int64_t backlog_end; /* rows up to here are backlog, sent after fresh ones */
    uint64_t next_backfill_ns;
    struct ltn_buf row;
    int64_t row_id;
    int row_signal;
    bool row_is_backlog;
    char token[MAX_TOKEN_BYTES];
    struct timespec token_mtime;
    uint64_t backoff_ns;

    pthread_mutex_t lock; /* guards stats */
    struct ltn_push_stats stats;
};

/* ---- waiting ---- */

/* Sleeps until the time is over, stop is asked for, or (when wanted) the outbox has grown. */
static void wait_for(struct ltn_push *p, uint64_t ns, bool for_rows)
{
    int fd = ltn_record_outbox_fd(p->record);
    struct pollfd fds[] = {{.fd = p->stop_fd, .events = POLLIN},
                           {.fd = for_rows ? fd : -1, .events = POLLIN}};
    eventfd_t value;
    (void)poll(fds, LTN_ARRAY_SIZE(fds), (int)((ns + LTN_NS_PER_MS - 1) / LTN_NS_PER_MS));
    if (for_rows) {
        (void)eventfd_read(fd, &value);
    }
}

static uint64_t random_below(uint64_t n)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != (ssize_t)sizeof(v)) {
        v = ltn_now_mono_ns();
    }
    return n > 0 ? v % n : 0;
}

/* Exponential, half of it random, never shorter than the collector asked for. */
static uint64_t next_backoff(struct ltn_push *p, uint64_t wish_ns)
{
    uint64_t next = p->backoff_ns == 0 ? p->conf.first_backoff_ns : p->backoff_ns * 2;
    p->backoff_ns = next < p->conf.longest_backoff_ns ? next : p->conf.longest_backoff_ns;
    uint64_t pause = p->backoff_ns / 2 + random_below(p->backoff_ns / 2 + 1);
    if (wish_ns > LONGEST_WISH_NS) {
        wish_ns = LONGEST_WISH_NS;
    }
    /* All agents got the same wish: spread them. */
    return wish_ns > pause ? wish_ns + random_below(wish_ns / 4 + 1) : pause;
}

/* ---- the outbox ---- */

static void close_reader(struct ltn_push *p)
{
    ltn_db_close(p->db);
    p->db = NULL;
}

static int open_reader(struct ltn_push *p)
{
    struct ltn_record_stats s;
    ltn_record_stats(p->record, &s);
    if (p->db != NULL && p->db_replaced == s.replaced_files) {
        return 0;
    }
    close_reader(p);
    p->db_replaced = s.replaced_files;
    return ltn_db_open_readonly(ltn_record_path(p->record), &p->db, NULL);
}

static int newest_row(struct ltn_push *p, int64_t *ret)
{
    return ltn_db_get_i64(p->db, "SELECT coalesce(max(id), 0) FROM outbox", ret);
}

/* Makes everything that waits now backlog, the row *from onwards included. */
static void all_is_backlog(struct ltn_push *p, int64_t from)
{
    int64_t newest;
    if (newest_row(p, &newest) < 0) {
        return;
    }
    if (p->backlog_cursor >= p->backlog_end) {
        p->backlog_cursor = from - 1;
    }
    p->backlog_end = newest > p->backlog_end ? newest : p->backlog_end;
    p->fresh_cursor = p->backlog_end;
}

/* Loads the first row in (after, up_to]. 1 when there is one, 0 when not, negative on error. */
static int load_row(struct ltn_push *p, int64_t after, int64_t up_to)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(
        p->db, "SELECT id, signal, bytes FROM outbox WHERE id > ? AND id <= ? ORDER BY id LIMIT 1",
        &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, after);
    ltn_stmt_i64(s, 2, up_to);
    rc = ltn_stmt_step(s);
    if (rc == 1) {
        size_t n = 0;
        const void *bytes = ltn_stmt_col_blob(s, 2, &n);
        p->row_id = ltn_stmt_col_i64(s, 0);
        p->row_signal = (int)ltn_stmt_col_i64(s, 1);
        ltn_buf_reset(&p->row);
        int copied = bytes != NULL ? ltn_buf_append(&p->row, bytes, n) : 0;
        /* No snapshot is held while the network is slow. */
        ltn_stmt_reset(s);
        return copied < 0 ? copied : 1;
    }
    return rc;
}

/* Next row to send: fresh ones first. ignore_pace sends the backlog without its pauses. */
static int next_row(struct ltn_push *p, bool ignore_pace)
{
    int rc = open_reader(p);
    if (rc == 0 && !p->positioned) {
        rc = newest_row(p, &p->backlog_end);
        p->fresh_cursor = p->backlog_end;
        p->positioned = rc == 0;
    }
    if (rc == 0) {
        p->row_is_backlog = false;
        rc = load_row(p, p->fresh_cursor, INT64_MAX);
    }
    if (rc == 0 && p->backlog_cursor < p->backlog_end &&
        (ignore_pace || ltn_now_mono_ns() >= p->next_backfill_ns)) {
        p->row_is_backlog = true;
        rc = load_row(p, p->backlog_cursor, p->backlog_end);
        if (rc == 0) {
            p->backlog_cursor = p->backlog_end;
        }
    }
    if (rc < 0) {
        close_reader(p);
    }
    return rc;
}

static void acknowledge(struct ltn_push *p, int64_t id, enum ltn_record_ack outcome)
{
    /* Busy only while the disk is stuck: then there is time. What is not acknowledged in the end is
     * sent again after the next start. */
    while (ltn_record_ack(p->record, id, outcome) == LTN_ERR_BUSY) {
        if (atomic_load(&p->stopping)) {
            return;
        }
        wait_for(p, 100 * LTN_NS_PER_MS, false);
    }
}

static void pass_row(struct ltn_push *p)
{
    if (p->row_is_backlog) {
        p->backlog_cursor = p->row_id;
        p->next_backfill_ns = ltn_now_mono_ns() + LTN_NS_PER_S / p->conf.backfill_per_s;
    } else {
        p->fresh_cursor = p->row_id;
    }
    acknowledge(p, p->row_id, LTN_RECORD_SENT);
}

/* ---- sending ---- */

/* Tokens are rotated under us: read again when the file changed. */
static void refresh_token(struct ltn_push *p)
{
    struct stat st;
    if (p->conf.token_file[0] == '\0' || stat(p->conf.token_file, &st) != 0 ||
        (st.st_mtim.tv_sec == p->token_mtime.tv_sec &&
         st.st_mtim.tv_nsec == p->token_mtime.tv_nsec)) {
        return;
    }
    char text[MAX_TOKEN_BYTES];
    if (ltn_file_read_head(p->conf.token_file, text, sizeof(text)) > 0) {
        text[strcspn(text, " \t\r\n")] = '\0';
        (void)ltn_copy_str(p->token, sizeof(p->token), text);
        p->token_mtime = st.st_mtim;
    }
    explicit_bzero(text, sizeof(text));
}

static void note_answer(struct ltn_push *p, const struct ltn_push_answer *a, uint64_t pause_ns)
{
    (void)pthread_mutex_lock(&p->lock);
    struct ltn_push_stats *s = &p->stats;
    switch (a->outcome) {
    case LTN_PUSH_SENT:
        s->sent++;
        s->sent_bytes += p->row.len;
        s->backfilled += p->row_is_backlog;
        s->rejected_points += a->rejected_points;
        s->last_sent_ns = ltn_now_unix_ns();
        (void)ltn_copy_str(s->verdict, sizeof(s->verdict), a->verdict);
        break;
    case LTN_PUSH_REFUSED:
        if (p->senders[p->row_signal == LTN_RECORD_LOGS].enabled) {
            s->refused++;
            (void)ltn_copy_str(s->last_refusal, sizeof(s->last_refusal), a->message);
        } else {
            s->not_wanted++;
        }
        break;
    case LTN_PUSH_RETRY:
        s->retries++;
        s->wrong_credentials = a->wrong_credentials;
        break;
    }
    if (a->rejected_points > 0) {
        (void)ltn_copy_str(s->last_rejection, sizeof(s->last_rejection), a->message);
    }
    if (a->message[0] != '\0') {
        (void)ltn_copy_str(s->last_error, sizeof(s->last_error), a->message);
    }
    s->backoff_ns = pause_ns;
    (void)pthread_mutex_unlock(&p->lock);
}

/* Sends the loaded row; returns the pause to make, 0 when it went. */
static uint64_t send_row(struct ltn_push *p)
{
    struct ltn_push_answer a = {.outcome = LTN_PUSH_REFUSED};
    bool logs = p->row_signal == LTN_RECORD_LOGS;
    struct ltn_push_sender *s = &p->senders[logs];
    if (s->enabled && p->row.len > 0) {
        refresh_token(p);
        ltn_push_send(s, p->token, p->row.data, p->row.len, &a);
    } else {
        (void)ltn_copy_str(a.message, sizeof(a.message), "no endpoint for this signal");
    }
    uint64_t pause = 0;
    if (a.outcome == LTN_PUSH_RETRY) {
        pause = next_backoff(p, a.retry_after_ns);
        acknowledge(p, p->row_id, LTN_RECORD_TRIED);
        all_is_backlog(p, p->row_id);
    } else {
        p->backoff_ns = 0;
        pass_row(p);
    }
    note_answer(p, &a, pause);
    return pause;
}

static uint64_t idle_ns(const struct ltn_push *p)
{
    uint64_t now = ltn_now_mono_ns();
    if (p->backlog_cursor < p->backlog_end && p->next_backfill_ns < now + IDLE_NS) {
        return p->next_backfill_ns > now ? p->next_backfill_ns - now : 0;
    }
    return IDLE_NS;
}

/* What is left when stop was asked for: no pauses, the first failure ends it. */
static void flush(struct ltn_push *p)
{
    while (ltn_now_mono_ns() < atomic_load(&p->cut_ns) && next_row(p, true) == 1) {
        if (send_row(p) != 0) {
            return;
        }
    }
}

static void *run(void *arg)
{
    struct ltn_push *p = arg;
    (void)pthread_setname_np(pthread_self(), "push");
    while (!atomic_load(&p->stopping)) {
        int rc = next_row(p, false);
        if (rc == 1) {
            uint64_t pause = send_row(p);
            if (pause > 0) {
                wait_for(p, pause, false);
            }
        } else {
            wait_for(p, rc == 0 ? idle_ns(p) : IDLE_NS, rc == 0);
        }
    }
    flush(p);
    close_reader(p);
    return NULL;
}

/* ---- life ---- */

int ltn_push_open(const struct ltn_push_conf *c, struct ltn_record *record,
                  struct ltn_push **ret_push, struct ltn_errinfo *info)
{
    struct ltn_push *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    p->conf = *c;
    p->record = record;
    p->conf.first_backoff_ns = c->first_backoff_ns != 0 ? c->first_backoff_ns : DEFAULT_FIRST_NS;
    p->conf.longest_backoff_ns =
        c->longest_backoff_ns != 0 ? c->longest_backoff_ns : DEFAULT_LONGEST_NS;
    p->conf.backfill_per_s = c->backfill_per_s != 0 ? c->backfill_per_s : DEFAULT_BACKFILL;
    p->conf.flush_ns = c->flush_ns != 0 ? c->flush_ns : DEFAULT_FLUSH_NS;
    ltn_buf_init(&p->row, MAX_ROW_BYTES);
    (void)pthread_mutex_init(&p->lock, NULL);
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = p->stop_fd < 0 ? ltn_errinfo_set(info, -errno, "out of descriptors") : 0;
    if (rc == 0 && !ltn_push_conf_enabled(c)) {
        rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "no collector is configured");
    }
    if (rc == 0) {
        rc = ltn_push_sender_init(&p->senders[0], &c->metrics, LTN_RECORD_METRICS, info);
    }
    if (rc == 0) {
        rc = ltn_push_sender_init(&p->senders[1], &c->logs, LTN_RECORD_LOGS, info);
    }
    p->senders[0].cut_ns = &p->cut_ns;
    p->senders[1].cut_ns = &p->cut_ns;
    if (rc == 0 && c->token_file[0] != '\0') {
        refresh_token(p);
        if (p->token[0] == '\0') {
            rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "%.150s: no token there", c->token_file);
        }
    }
    if (rc < 0) {
        ltn_push_close(p);
        return rc;
    }
    *ret_push = p;
    return 0;
}

int ltn_push_start(struct ltn_push *p)
{
    int rc = pthread_create(&p->thread, NULL, run, p);
    p->started = rc == 0;
    return -rc;
}

void ltn_push_stop(struct ltn_push *p)
{
    atomic_store(&p->cut_ns, ltn_now_mono_ns() + p->conf.flush_ns);
    atomic_store(&p->stopping, true);
    (void)eventfd_write(p->stop_fd, 1);
    if (p->started) {
        (void)pthread_join(p->thread, NULL);
        p->started = false;
    }
}

void ltn_push_close(struct ltn_push *p)
{
    if (p == NULL) {
        return;
    }
    if (p->stop_fd >= 0) {
        ltn_push_stop(p);
        (void)close(p->stop_fd);
    }
    ltn_push_sender_done(&p->senders[0]);
    ltn_push_sender_done(&p->senders[1]);
    ltn_buf_done(&p->row);
    (void)pthread_mutex_destroy(&p->lock);
    explicit_bzero(p->token, sizeof(p->token));
    free(p);
}

void ltn_push_stats(struct ltn_push *p, struct ltn_push_stats *ret)
{
    (void)pthread_mutex_lock(&p->lock);
    *ret = p->stats;
    (void)pthread_mutex_unlock(&p->lock);
}
