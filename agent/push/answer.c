/* SPDX-License-Identifier: Apache-2.0 */
#include "push/answer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "record/reader.h"

#define MAX_WAITING      4 /* queries */
#define MAX_ANSWERS      4 /* messages not yet fetched; the statement waits */
#define MAX_ROWS         100000
#define DEFAULT_ROWS     10000
#define MAX_BYTES        (16ULL << 20)
#define MAX_TIMEOUT_NS   (60 * LTN_NS_PER_S)
#define DEFAULT_TIME_NS  (5 * LTN_NS_PER_S)
#define MAX_ROW_BYTES    ((size_t)512 << 10)
#define CANCELLED_STATUS 1 /* gRPC */
#define NICE             5

struct query {
    uint64_t id;
    uint64_t generation;
    uint64_t max_rows, max_bytes, timeout_ns;
    char *sql;
};

struct ltn_answerer {
    char *db_path;
    int wake_fd;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t change; /* CLOCK_MONOTONIC */
    bool stop;
    struct query waiting[MAX_WAITING];
    size_t waiting_n;
    uint64_t running_id;
    bool running;
    atomic_bool cancelled; /* the running one */
    uint64_t generation;   /* grows with each lost stream */
    struct ltn_answer *first, **last;
    size_t answers_n;
    uint64_t dropped;
};

/* One query being run; worker thread. */
struct run {
    struct ltn_answerer *a;
    const struct query *q;
    uint64_t deadline_ns;
    struct ltn_buf b;
    struct ltn_control_page_writer w;
    uint32_t page;
    size_t page_rows;
    bool open;
};

/* ---- handing over ---- */

static void wake(const struct ltn_answerer *a)
{
    const uint64_t one = 1;
    (void)!write(a->wake_fd, &one, sizeof(one)); /* full: it is awake anyway */
}

/* Waits for room and queues the bytes in b. 0, LTN_ERR_CLOSED when taken back, LTN_ERR_TIMEOUT. */
static int hand_over(struct run *r, bool end, bool failed)
{
    struct ltn_answerer *a = r->a;
    const struct timespec until = {.tv_sec = (time_t)(r->deadline_ns / LTN_NS_PER_S),
                                   .tv_nsec = (long)(r->deadline_ns % LTN_NS_PER_S)};
    struct ltn_answer *m = malloc(sizeof(*m) + r->b.len);
    if (ltn_buf_error(&r->b) != 0 || m == NULL) {
        free(m);
        return -ENOMEM;
    }
    *m = (struct ltn_answer){.query_id = r->q->id,
                             .generation = r->q->generation,
                             .end = end,
                             .failed = failed,
                             .n = r->b.len};
    memcpy(m->bytes, r->b.data, r->b.len);
    int rc = 0;
    pthread_mutex_lock(&a->lock);
    while (!end && rc == 0 && a->answers_n >= MAX_ANSWERS && !atomic_load(&a->cancelled)) {
        rc = pthread_cond_timedwait(&a->change, &a->lock, &until);
    }
    bool gone =
        a->stop || r->q->generation != a->generation || (!end && atomic_load(&a->cancelled));
    if (rc == 0 && !gone) {
        *a->last = m;
        a->last = &m->next;
        a->answers_n++;
        m = NULL;
    } else if (gone) {
        a->dropped++;
        rc = LTN_ERR_CLOSED;
    } else {
        rc = LTN_ERR_TIMEOUT;
    }
    pthread_mutex_unlock(&a->lock);
    free(m);
    if (rc == 0) {
        wake(a);
    }
    return rc;
}

static void open_page(struct run *r)
{
    ltn_buf_reset(&r->b);
    ltn_control_open_page(&r->w, &r->b, r->q->id, r->page++);
    r->page_rows = 0;
    r->open = true;
}

static int flush_page(struct run *r)
{
    if (!r->open) {
        return 0;
    }
    ltn_control_close_page(&r->w);
    r->open = false;
    return hand_over(r, false, false);
}

/* ---- rows ---- */

static int on_columns(void *ctx, const char *const *names, size_t n)
{
    struct run *r = ctx;
    open_page(r);
    for (size_t i = 0; i < n; i++) {
        ltn_control_put_column(&r->w, names[i]);
    }
    return ltn_buf_error(&r->b);
}

static struct ltn_control_cell cell_of(const struct ltn_sql_value *v)
{
    struct ltn_control_cell c = {.type = LTN_CONTROL_NULL};
    switch (v->type) {
    case LTN_SQL_I64:
        c.type = LTN_CONTROL_INTEGER;
        c.integer = v->i;
        break;
    case LTN_SQL_F64:
        c.type = LTN_CONTROL_REAL;
        c.real = v->f;
        break;
    case LTN_SQL_TEXT:
    case LTN_SQL_BLOB:
        c.type = v->type == LTN_SQL_TEXT ? LTN_CONTROL_TEXT : LTN_CONTROL_BLOB;
        c.bytes = (struct ltn_control_str){v->p, v->n};
        break;
    case LTN_SQL_NULL:
        break;
    }
    return c;
}

static int on_row(void *ctx, const struct ltn_sql_value *values, size_t n)
{
    struct run *r = ctx;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += values[i].n + 16;
    }
    if (bytes > MAX_ROW_BYTES) {
        return LTN_ERR_TOO_LARGE;
    }
    if (r->open &&
        (r->page_rows == LTN_CONTROL_PAGE_ROWS || r->b.len + bytes > LTN_CONTROL_PAGE_BYTES)) {
        int rc = flush_page(r);
        if (rc != 0) {
            return rc;
        }
    }
    if (!r->open) {
        open_page(r);
    }
    ltn_control_open_row(&r->w);
    for (size_t i = 0; i < n; i++) {
        const struct ltn_control_cell c = cell_of(&values[i]);
        ltn_control_put_cell(&r->b, &c);
    }
    ltn_control_close_row(&r->w);
    r->page_rows++;
    return ltn_buf_error(&r->b);
}

static int run_statement(struct run *r, struct ltn_db_query_result *res, struct ltn_errinfo *info)
{
    struct ltn_record_reader *reader = NULL;
    const struct ltn_db_limits limits = {.timeout_ns = r->q->timeout_ns,
                                         .max_rows = r->q->max_rows,
                                         .max_bytes = r->q->max_bytes,
                                         .cancelled = &r->a->cancelled};
    const struct ltn_db_sink sink = {.ctx = r, .on_columns = on_columns, .on_row = on_row};
    int rc = ltn_record_reader_open(r->a->db_path, &reader, info);
    if (rc != 0) {
        return rc;
    }
    rc = ltn_record_query(reader, r->q->sql, &limits, &sink, res, info);
    ltn_record_reader_close(reader);
    return rc;
}

static void run_query(struct ltn_answerer *a, const struct query *q)
{
    uint64_t started_ns = ltn_now_mono_ns();
    struct run r = {.a = a, .q = q, .deadline_ns = started_ns + q->timeout_ns};
    struct ltn_db_query_result res = {0};
    struct ltn_errinfo info = {0};
    ltn_buf_init(&r.b, LTN_CONTROL_MESSAGE_BYTES);
    int rc = run_statement(&r, &res, &info);
    if (rc == 0) {
        rc = flush_page(&r);
    }
    if (rc != 0 && info.msg[0] == '\0') {
        (void)ltn_errinfo_set(&info, rc, "%s", ltn_err_str(rc));
    }
    bool cancelled = atomic_load(&a->cancelled);
    const struct ltn_control_end end = {
        .id = q->id,
        .code = rc == 0 ? 0 : (cancelled ? CANCELLED_STATUS : ltn_err_grpc(rc)),
        .message = ltn_control_str(rc == 0 ? "" : (cancelled ? "cancelled" : info.msg)),
        .truncated = res.truncated,
        .rows = res.rows,
        .elapsed_ns = ltn_now_mono_ns() - started_ns,
    };
    ltn_buf_reset(&r.b);
    ltn_control_put_end(&r.b, &end);
    (void)hand_over(&r, true, rc != 0);
    ltn_buf_done(&r.b);
}

/* ---- the thread ---- */

static void *work(void *arg)
{
    struct ltn_answerer *a = arg;
    (void)pthread_setname_np(pthread_self(), "query");
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (a->waiting_n == 0) {
            pthread_cond_wait(&a->change, &a->lock);
            continue;
        }
        struct query q = a->waiting[0];
        a->waiting_n--;
        memmove(&a->waiting[0], &a->waiting[1], a->waiting_n * sizeof(q));
        a->running = true;
        a->running_id = q.id;
        atomic_store(&a->cancelled, false);
        pthread_mutex_unlock(&a->lock);
        run_query(a, &q);
        free(q.sql);
        pthread_mutex_lock(&a->lock);
        a->running = false;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int ltn_answerer_new(const char *db_path, int wake_fd, struct ltn_answerer **ret)
{
    pthread_condattr_t attr;
    struct ltn_answerer *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return -ENOMEM;
    }
    a->db_path = strdup(db_path);
    a->wake_fd = wake_fd;
    a->last = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->change, &attr);
    pthread_condattr_destroy(&attr);
    if (a->db_path == NULL) {
        ltn_answerer_free(a);
        return -ENOMEM;
    }
    *ret = a;
    return 0;
}

int ltn_answerer_start(struct ltn_answerer *a)
{
    int rc = pthread_create(&a->thread, NULL, work, a);
    a->runs = rc == 0;
    return -rc;
}

/* With the lock held. */
static void drop_answers(struct ltn_answerer *a)
{
    while (a->first != NULL) {
        struct ltn_answer *m = a->first;
        a->first = m->next;
        a->dropped++;
        free(m);
    }
    a->last = &a->first;
    a->answers_n = 0;
}

size_t ltn_answerer_cancel_all(struct ltn_answerer *a)
{
    pthread_mutex_lock(&a->lock);
    size_t n = a->waiting_n + (a->running ? 1 : 0);
    for (size_t i = 0; i < a->waiting_n; i++) {
        free(a->waiting[i].sql);
    }
    a->waiting_n = 0;
    a->generation++;
    atomic_store(&a->cancelled, true);
    drop_answers(a);
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    return n;
}

void ltn_answerer_free(struct ltn_answerer *a)
{
    if (a == NULL) {
        return;
    }
    (void)ltn_answerer_cancel_all(a);
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    atomic_store(&a->cancelled, true);
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    if (a->runs) {
        (void)pthread_join(a->thread, NULL);
    }
    drop_answers(a);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    free(a->db_path);
    free(a);
}

static uint64_t bounded(uint64_t v, uint64_t otherwise, uint64_t max)
{
    v = v != 0 ? v : otherwise;
    return v < max ? v : max;
}

int ltn_answerer_ask(struct ltn_answerer *a, const struct ltn_control_query *q)
{
    struct query mine = {
        .id = q->id,
        .max_rows = bounded(q->max_rows, DEFAULT_ROWS, MAX_ROWS),
        .max_bytes = bounded(q->max_bytes, MAX_BYTES, MAX_BYTES),
        .timeout_ns = bounded(q->timeout_ns, DEFAULT_TIME_NS, MAX_TIMEOUT_NS),
        .sql = strndup(q->sql.p != NULL ? q->sql.p : "", q->sql.n),
    };
    if (mine.sql == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_lock(&a->lock);
    bool room = a->waiting_n < MAX_WAITING && !a->stop;
    if (room) {
        mine.generation = a->generation;
        a->waiting[a->waiting_n++] = mine;
        pthread_cond_broadcast(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    if (!room) {
        free(mine.sql);
        return LTN_ERR_BUSY;
    }
    return 0;
}

bool ltn_answerer_cancel(struct ltn_answerer *a, uint64_t id)
{
    bool found = false;
    pthread_mutex_lock(&a->lock);
    if (a->running && a->running_id == id) {
        atomic_store(&a->cancelled, true);
        pthread_cond_broadcast(&a->change);
        found = true;
    }
    for (size_t i = 0; i < a->waiting_n && !found; i++) {
        if (a->waiting[i].id == id) {
            free(a->waiting[i].sql);
            a->waiting_n--;
            memmove(&a->waiting[i], &a->waiting[i + 1], (a->waiting_n - i) * sizeof(a->waiting[0]));
            found = true;
        }
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

struct ltn_answer *ltn_answerer_next(struct ltn_answerer *a)
{
    pthread_mutex_lock(&a->lock);
    struct ltn_answer *m = a->first;
    if (m != NULL) {
        a->first = m->next;
        a->answers_n--;
        if (a->first == NULL) {
            a->last = &a->first;
        }
        m->next = NULL;
        pthread_cond_broadcast(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    return m;
}

uint64_t ltn_answerer_dropped(struct ltn_answerer *a)
{
    pthread_mutex_lock(&a->lock);
    uint64_t n = a->dropped;
    pthread_mutex_unlock(&a->lock);
    return n;
}

bool ltn_answerer_idle(struct ltn_answerer *a)
{
    pthread_mutex_lock(&a->lock);
    bool idle = a->waiting_n == 0 && !a->running && a->first == NULL;
    pthread_mutex_unlock(&a->lock);
    return idle;
}
