/* SPDX-License-Identifier: Apache-2.0 */
#include "record/record.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/chan.h"
#include "base/clock.h"
#include "base/text.h"
#include "record/schema.h"
#include "record/upkeep.h"
#include "record/writer.h"
#include "sql/claim.h"

#define DEFAULT_COMMIT_MS    250
#define DEFAULT_RETRY_MS     5000
#define DEFAULT_WINDOWS      64
#define DEFAULT_BATCHES      4096 /* stacks among them, which are small: bytes are the bound */
#define DEFAULT_QUEUE_BYTES  (64ULL << 20)
#define DEFAULT_OUTBOX_BYTES (256ULL << 20)
#define DEFAULT_OUTBOX_AGE   (24ULL * 3600 * LTN_NS_PER_S)
/* A group is committed at this many calls even when its time is not up. */
#define GROUP_CALLS 20000
/* What waits in memory while writing fails, at most. */
#define KEEP_ITEMS      64
#define KEEP_CALLS      20000
#define KEEP_BYTES      (32ULL << 20)
#define MAX_ACKS        4096
#define IDLE_MS         1000
#define UPKEEP_EVERY_NS LTN_NS_PER_S
#define TEXT_MAX        4096
#define EVIDENCE_MAX    (64U << 10)

enum kind { KIND_WINDOW, KIND_CALLS, KIND_INCIDENT, KIND_STACK, KINDS };

struct item {
    struct item *next;
    enum kind kind;
    uint64_t sequence; /* windows */
    uint64_t units;    /* windows 1, calls their number */
    size_t bytes;
    struct ltn_window *window;
    struct ltn_call_batch *batch;
    const struct ltn_stack *stack;
    struct ltn_record_incident incident;
    char texts[]; /* of the incident */
};

/* FIFO of items that are received and not committed. */
struct list {
    struct item *first;
    struct item **last;
    size_t items;
    uint64_t units;
    size_t bytes;
};

struct flow {
    _Atomic uint64_t received;
    _Atomic uint64_t stored;
    _Atomic uint64_t dropped[LTN_RECORD_DROPS];
};

struct ack {
    int64_t id;
    enum ltn_record_ack outcome;
};

struct ltn_record {
    struct ltn_record_opts opts;
    struct ltn_record_encoder encoder;
    char path[LTN_DB_PATH_BYTES];
    char node[256];
    char moved[LTN_DB_PATH_BYTES];

    struct ltn_chan *windows; /* windows and incidents: few and dear */
    struct ltn_chan *calls;   /* and stacks */
    struct flow flows[KINDS];
    _Atomic uint64_t sequence;
    int wake_fd;
    int outbox_fd;
    _Atomic bool stopping;
    bool started;
    pthread_t thread;

    pthread_mutex_t ack_lock; /* guards acks and ack_count */
    struct ack *acks;
    size_t ack_count;

    /* Thread "record" only. */
    struct ltn_db *db;
    struct ltn_db_claim claim;
    struct ltn_writer writer;
    struct list keep[2]; /* windows and incidents; calls and stacks */
    struct ltn_outbox_size outbox;
    uint64_t first_waiting_ns; /* when the group began; 0: empty */
    uint64_t next_try_ns;      /* while degraded */
    uint64_t next_upkeep_ns;
    struct ack *taken; /* acks of the running group */
    size_t taken_count;

    /* Written by the thread, read by anyone. */
    _Atomic uint64_t db_bytes, used_bytes;
    _Atomic uint64_t pruned_calls, pruned_windows, pruned_incidents;
    _Atomic uint64_t commits, failed_commits, replaced_files;
    _Atomic uint64_t outbox_rows, outbox_bytes;
    _Atomic uint64_t outbox_dropped_bytes, outbox_dropped_age, outbox_unencodable;
    _Atomic bool degraded;
    _Atomic int failed_rc;
};

/* ---- items ---- */

static void free_item(void *p)
{
    struct item *i = p;
    if (i != NULL) {
        ltn_window_free(i->window);
        free(i->batch);
        ltn_stack_unref(i->stack);
        free(i);
    }
}

static void count_drop(struct ltn_record *r, enum kind kind, enum ltn_record_drop why, uint64_t n)
{
    atomic_fetch_add(&r->flows[kind].dropped[why], n);
}

/* Of the kinds that come in masses. */
static bool is_bulk(enum kind kind)
{
    return kind == KIND_CALLS || kind == KIND_STACK;
}

static void list_init(struct list *l)
{
    *l = (struct list){.last = &l->first};
}

static void list_add(struct list *l, struct item *i)
{
    i->next = NULL;
    *l->last = i;
    l->last = &i->next;
    l->items++;
    l->units += i->units;
    l->bytes += i->bytes;
}

static struct item *list_take(struct list *l)
{
    struct item *i = l->first;
    if (i != NULL) {
        l->first = i->next;
        if (l->first == NULL) {
            l->last = &l->first;
        }
        l->items--;
        l->units -= i->units;
        l->bytes -= i->bytes;
    }
    return i;
}

/* Ends the items of a list: all of them stored, or dropped for a reason. */
static void list_drop(struct ltn_record *r, struct list *l, enum ltn_record_drop why)
{
    for (struct item *i = list_take(l); i != NULL; i = list_take(l)) {
        count_drop(r, i->kind, why, i->units);
        free_item(i);
    }
}

/* ---- sending ---- */

static int send_item(struct ltn_record *r, struct item *i)
{
    struct ltn_chan *c = is_bulk(i->kind) ? r->calls : r->windows;
    /* Once it is in the channel the item may be gone. */
    enum kind kind = i->kind;
    uint64_t units = i->units;
    atomic_fetch_add(&r->flows[kind].received, units);
    int rc = ltn_chan_send(c, i, i->bytes);
    if (rc < 0) {
        count_drop(r, kind, rc == LTN_ERR_CLOSED ? LTN_RECORD_DROP_CLOSED : LTN_RECORD_DROP_QUEUE,
                   units);
        i->window = NULL; /* stays the caller's */
        i->batch = NULL;
        free_item(i);
    }
    return rc;
}

/* Counts something that could not even be wrapped up. */
static int refuse(struct ltn_record *r, enum kind kind, uint64_t units, int rc)
{
    atomic_fetch_add(&r->flows[kind].received, units);
    count_drop(r, kind, LTN_RECORD_DROP_QUEUE, units);
    return rc;
}

int ltn_record_send_window(struct ltn_record *r, struct ltn_window *w)
{
    /* Also a window that is refused takes a number: the gap shows its loss to the collector. */
    uint64_t sequence = atomic_fetch_add(&r->sequence, 1) + 1;
    struct item *i = calloc(1, sizeof(*i));
    if (i == NULL) {
        return refuse(r, KIND_WINDOW, 1, LTN_ERR_BUSY);
    }
    i->kind = KIND_WINDOW;
    i->window = w;
    i->sequence = sequence;
    i->units = 1;
    i->bytes = sizeof(*i) + sizeof(*w) + w->arena.used_bytes;
    return send_item(r, i);
}

int ltn_record_send_calls(struct ltn_record *r, struct ltn_call_batch *batch)
{
    struct item *i = r->opts.record_calls ? calloc(1, sizeof(*i)) : NULL;
    if (!r->opts.record_calls) {
        atomic_fetch_add(&r->flows[KIND_CALLS].received, batch->count);
        count_drop(r, KIND_CALLS, LTN_RECORD_DROP_DISABLED, batch->count);
        free(batch);
        return 0;
    }
    if (i == NULL) {
        return refuse(r, KIND_CALLS, batch->count, LTN_ERR_BUSY);
    }
    i->kind = KIND_CALLS;
    i->batch = batch;
    i->units = batch->count;
    i->bytes = sizeof(*i) + sizeof(*batch) + batch->capacity * sizeof(batch->calls[0]);
    return send_item(r, i);
}

int ltn_record_send_stack(struct ltn_record *r, const struct ltn_stack *s)
{
    struct item *i = calloc(1, sizeof(*i));
    if (i == NULL) {
        return refuse(r, KIND_STACK, 1, LTN_ERR_BUSY);
    }
    i->kind = KIND_STACK;
    i->stack = ltn_stack_ref(s);
    i->units = 1;
    i->bytes = sizeof(*i) + ltn_stack_bytes(s);
    return send_item(r, i);
}

struct text_copy {
    const char **at;
    size_t max;
};

static const char *text_or_empty(const char *s)
{
    return s != NULL ? s : "";
}

int ltn_record_send_incident(struct ltn_record *r, const struct ltn_record_incident *in)
{
    struct ltn_record_incident copy = *in;
    const struct text_copy texts[] = {{&copy.id, TEXT_MAX},          {&copy.state, TEXT_MAX},
                                      {&copy.kind, TEXT_MAX},        {&copy.severity, TEXT_MAX},
                                      {&copy.title, TEXT_MAX},       {&copy.cause, TEXT_MAX},
                                      {&copy.evidence, EVIDENCE_MAX}};
    size_t bytes = 0;
    for (size_t k = 0; k < LTN_ARRAY_SIZE(texts); k++) {
        bytes += strnlen(text_or_empty(*texts[k].at), texts[k].max) + 1;
    }
    struct item *i = calloc(1, sizeof(*i) + bytes);
    if (i == NULL) {
        return refuse(r, KIND_INCIDENT, 1, -ENOMEM);
    }
    char *to = i->texts;
    for (size_t k = 0; k < LTN_ARRAY_SIZE(texts); k++) {
        size_t n = strnlen(text_or_empty(*texts[k].at), texts[k].max);
        memcpy(to, text_or_empty(*texts[k].at), n);
        *texts[k].at = to;
        to += n + 1;
    }
    i->kind = KIND_INCIDENT;
    i->incident = copy;
    i->units = 1;
    i->bytes = sizeof(*i) + bytes;
    return send_item(r, i);
}

int ltn_record_ack(struct ltn_record *r, int64_t outbox_id, enum ltn_record_ack outcome)
{
    int rc = 0;
    (void)pthread_mutex_lock(&r->ack_lock);
    if (atomic_load(&r->stopping)) {
        rc = LTN_ERR_CLOSED;
    } else if (r->ack_count == MAX_ACKS) {
        rc = LTN_ERR_BUSY;
    } else {
        r->acks[r->ack_count++] = (struct ack){.id = outbox_id, .outcome = outcome};
    }
    (void)pthread_mutex_unlock(&r->ack_lock);
    if (rc == 0) {
        (void)eventfd_write(r->wake_fd, 1);
    }
    return rc;
}

/* ---- storing ---- */

struct emit {
    struct ltn_record *r;
    uint64_t created_ns;
    uint64_t sequence;
    struct ltn_outbox_size *size;
};

static int emit_row(void *ctx, enum ltn_record_signal signal, const void *bytes, size_t n)
{
    struct emit *e = ctx;
    return ltn_outbox_append(e->r->db,
                             &(struct ltn_outbox_row){.signal = (int)signal,
                                                      .created_ns = e->created_ns,
                                                      .sequence = e->sequence,
                                                      .bytes = bytes,
                                                      .n = n},
                             e->size);
}

/* True for failures of the file, not of what is written. */
static bool is_fatal(int rc)
{
    return rc == LTN_ERR_DISK || rc == LTN_ERR_CORRUPT || rc == LTN_ERR_BUSY || rc == -ENOMEM ||
           rc == LTN_ERR_NOT_FOUND;
}

static int encode_item(struct ltn_record *r, const struct item *i, struct ltn_outbox_size *size)
{
    struct emit e = {
        .r = r, .created_ns = ltn_now_unix_ns(), .sequence = i->sequence, .size = size};
    int rc = 0;
    if (i->kind == KIND_WINDOW && r->encoder.window != NULL) {
        rc = r->encoder.window(r->encoder.ctx, i->window, i->sequence, emit_row, &e);
    } else if (i->kind == KIND_INCIDENT && r->encoder.incident != NULL) {
        rc = r->encoder.incident(r->encoder.ctx, &i->incident, emit_row, &e);
    }
    if (rc < 0 && !is_fatal(rc)) {
        atomic_fetch_add(&r->outbox_unencodable, 1);
        rc = 0; /* what is stored here is right all the same */
    }
    return rc;
}

static uint64_t calls_lost(const struct ltn_record *r)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < LTN_RECORD_DROPS; i++) {
        sum += i == LTN_RECORD_DROP_DISABLED ? 0 : atomic_load(&r->flows[KIND_CALLS].dropped[i]);
    }
    return sum;
}

static int write_item(struct ltn_record *r, const struct item *i, struct ltn_outbox_size *size)
{
    int rc = 0;
    switch (i->kind) {
    case KIND_WINDOW:
        r->writer.calls_lost = calls_lost(r);
        rc = ltn_writer_window(&r->writer, i->window, i->sequence);
        break;
    case KIND_CALLS:
        rc = ltn_writer_calls(&r->writer, i->batch);
        break;
    case KIND_INCIDENT:
        rc = ltn_writer_incident(&r->writer, &i->incident);
        break;
    case KIND_STACK:
        rc = ltn_writer_stack(&r->writer, i->stack);
        break;
    case KINDS:
        break;
    }
    return rc < 0 ? rc : encode_item(r, i, size);
}

/* What a transaction has done so far, made true by its commit. */
struct group {
    struct list stored;
    struct list invalid;
    struct ltn_outbox_size outbox;
    struct ltn_outbox_dropped dropped;
    bool pushed;
};

static int write_or_refuse(struct ltn_record *r, struct group *g, struct list *from)
{
    struct ltn_outbox_size before = g->outbox;
    int rc = ltn_db_exec(r->db, "SAVEPOINT item");
    if (rc < 0) {
        return rc;
    }
    rc = write_item(r, from->first, &g->outbox);
    if (rc < 0) {
        if (is_fatal(rc)) {
            return rc;
        }
        g->outbox = before;
        ltn_writer_forget(&r->writer);
        rc = ltn_db_exec(r->db, "ROLLBACK TO item; RELEASE item");
        if (rc == 0) {
            list_add(&g->invalid, list_take(from));
        }
        return rc;
    }
    rc = ltn_db_exec(r->db, "RELEASE item");
    if (rc == 0) {
        list_add(&g->stored, list_take(from));
    }
    return rc;
}

static int apply_acks(struct ltn_record *r, struct group *g)
{
    (void)pthread_mutex_lock(&r->ack_lock);
    size_t n = r->ack_count;
    if (n > MAX_ACKS - r->taken_count) {
        n = MAX_ACKS - r->taken_count;
    }
    memcpy(r->taken + r->taken_count, r->acks, n * sizeof(*r->acks));
    memmove(r->acks, r->acks + n, (r->ack_count - n) * sizeof(*r->acks));
    r->ack_count -= n;
    (void)pthread_mutex_unlock(&r->ack_lock);
    r->taken_count += n;
    int rc = 0;
    for (size_t i = 0; i < r->taken_count && rc == 0; i++) {
        rc = r->taken[i].outcome == LTN_RECORD_SENT
                 ? ltn_outbox_remove(r->db, r->taken[i].id, &g->outbox)
                 : ltn_outbox_tried(r->db, r->taken[i].id);
    }
    return rc;
}

static int bound_outbox(struct ltn_record *r, struct group *g)
{
    uint64_t now = ltn_now_unix_ns();
    uint64_t oldest = now > r->opts.outbox_max_age_ns ? now - r->opts.outbox_max_age_ns : 0;
    return ltn_outbox_bound(r->db, oldest, r->opts.outbox_max_bytes, &g->outbox, &g->dropped);
}

static int write_group(struct ltn_record *r, struct group *g)
{
    int rc = ltn_db_begin(r->db);
    if (rc == 0) {
        rc = apply_acks(r, g);
    }
    for (size_t k = 0; k < LTN_ARRAY_SIZE(r->keep); k++) {
        while (rc == 0 && r->keep[k].first != NULL) {
            rc = write_or_refuse(r, g, &r->keep[k]);
        }
    }
    if (rc == 0) {
        rc = bound_outbox(r, g);
    }
    if (rc == 0) {
        rc = ltn_writer_save_counters(&r->writer);
    }
    if (rc == 0) {
        rc = ltn_db_commit(r->db);
    }
    if (rc == 0) {
        /* Stored is only what can be found. */
        rc = ltn_db_look(r->db);
    }
    return rc;
}

static void finish_list(struct ltn_record *r, struct list *l)
{
    for (struct item *i = list_take(l); i != NULL; i = list_take(l)) {
        atomic_fetch_add(&r->flows[i->kind].stored, i->units);
        free_item(i);
    }
}

static void finish_group(struct ltn_record *r, struct group *g)
{
    bool grown = g->outbox.rows > r->outbox.rows || g->stored.items > 0;
    r->taken_count = 0;
    r->outbox = g->outbox;
    atomic_store(&r->outbox_rows, g->outbox.rows);
    atomic_store(&r->outbox_bytes, g->outbox.bytes);
    atomic_fetch_add(&r->outbox_dropped_age, g->dropped.for_age);
    atomic_fetch_add(&r->outbox_dropped_bytes, g->dropped.for_bytes);
    atomic_fetch_add(&r->commits, 1);
    atomic_store(&r->degraded, false);
    r->next_try_ns = 0;
    r->first_waiting_ns = 0;
    /* Last: who sees that nothing waits any more sees the rest as well. */
    finish_list(r, &g->stored);
    list_drop(r, &g->invalid, LTN_RECORD_DROP_INVALID);
    if (grown) {
        (void)eventfd_write(r->outbox_fd, 1);
    }
}

/* Puts items back in front, in their order. */
static void put_back(struct ltn_record *r, struct list *from)
{
    struct list old[2] = {r->keep[0], r->keep[1]};
    for (size_t k = 0; k < 2; k++) {
        if (old[k].first == NULL) {
            old[k].last = &old[k].first;
        }
        list_init(&r->keep[k]);
    }
    for (struct item *i = list_take(from); i != NULL; i = list_take(from)) {
        list_add(&r->keep[is_bulk(i->kind)], i);
    }
    for (size_t k = 0; k < 2; k++) {
        for (struct item *i = list_take(&old[k]); i != NULL; i = list_take(&old[k])) {
            list_add(&r->keep[k], i);
        }
    }
}

/* A bounded number of the newest stays; what goes is counted. */
static void shed(struct ltn_record *r)
{
    struct list *w = &r->keep[0];
    struct list *c = &r->keep[1];
    while (c->first != NULL && (c->units > KEEP_CALLS || c->bytes > KEEP_BYTES)) {
        struct item *i = list_take(c);
        count_drop(r, i->kind, LTN_RECORD_DROP_DISK, i->units);
        free_item(i);
    }
    while (w->first != NULL && (w->items > KEEP_ITEMS || w->bytes > KEEP_BYTES)) {
        struct item *i = list_take(w);
        count_drop(r, i->kind, LTN_RECORD_DROP_DISK, i->units);
        free_item(i);
    }
}

/* What every record has had from the first version on. */
static const char *const our_tables[] = {
    "strings", "procs", "ops", "windows", "op_windows", "incident_changes", "outbox", NULL};

static int open_database(struct ltn_record *r, char *ret_moved, struct ltn_errinfo *info)
{
    struct ltn_db_opts o = {.path = r->path,
                            .sync_full = r->opts.sync_full,
                            .own = r->opts.own,
                            .uid = r->opts.uid,
                            .gid = r->opts.gid};
    int64_t version = 0;
    int rc = ltn_db_open_or_recover(&o, &r->claim, &r->db, ret_moved, info);
    if (rc < 0) {
        return rc;
    }
    rc = ltn_db_get_i64(r->db, "PRAGMA user_version", &version);
    if (rc == 0) {
        rc = ltn_db_migrate(r->db, ltn_record_migrations, ltn_record_migration_count, info);
    }
    if (rc == 0) {
        rc = ltn_writer_init(&r->writer, r->db, r->node);
        if (rc < 0) {
            (void)ltn_errinfo_set(info, rc, "%s: %s", r->path, ltn_db_message(r->db));
        }
    }
    if (rc < 0) {
        ltn_db_close(r->db);
        r->db = NULL;
        return rc;
    }
    if (version == 0) {
        /* Ids of the outbox never come twice, not even after a damaged file was replaced: a late
         * acknowledgement must not hit another row. */
        rc = ltn_db_exec(r->db, "INSERT INTO sqlite_sequence (name, seq) SELECT 'outbox', "
                                "CAST(strftime('%s', 'now') AS INTEGER) * 1000");
    }
    if (rc == 0) {
        rc = ltn_outbox_measure(r->db, &r->outbox);
    }
    atomic_store(&r->outbox_rows, r->outbox.rows);
    atomic_store(&r->outbox_bytes, r->outbox.bytes);
    return rc;
}

static void close_database(struct ltn_record *r)
{
    if (r->db != NULL) {
        ltn_writer_done(&r->writer);
        ltn_db_close(r->db);
        r->db = NULL;
    }
}

/* Opens again: after damage the file goes aside and a new one begins, after somebody deleted it a
 * new one begins; either way without the outbox that was in it. */
static int reopen_database(struct ltn_record *r)
{
    char moved[LTN_DB_PATH_BYTES] = "";
    if (r->db != NULL) {
        ltn_db_claim_file(&r->claim, r->db);
    }
    close_database(r);
    int rc = open_database(r, moved, NULL);
    if (moved[0] != '\0') {
        atomic_fetch_add(&r->replaced_files, 1);
    }
    return rc;
}

/* True when the database stands as it was left; else it was opened again, or that failed, in which
 * case db is NULL and the next try begins with opening. */
static bool still_stands(struct ltn_record *r)
{
    int rc = ltn_db_look(r->db);
    if (rc == 0) {
        return true;
    }
    if (rc == LTN_ERR_NOT_FOUND) {
        atomic_fetch_add(&r->replaced_files, 1);
    }
    int reopened = reopen_database(r);
    if (reopened < 0) {
        atomic_store(&r->failed_rc, reopened);
        atomic_store(&r->degraded, true);
        r->next_try_ns = ltn_now_mono_ns() + r->opts.retry_ms * LTN_NS_PER_MS;
    }
    return false;
}

static void fail_group(struct ltn_record *r, struct group *g, int rc)
{
    ltn_db_rollback(r->db);
    ltn_writer_forget(&r->writer);
    put_back(r, &g->invalid);
    put_back(r, &g->stored);
    atomic_fetch_add(&r->failed_commits, 1);
    atomic_store(&r->failed_rc, rc);
    atomic_store(&r->degraded, true);
    r->next_try_ns = ltn_now_mono_ns() + r->opts.retry_ms * LTN_NS_PER_MS;
    if (rc == LTN_ERR_CORRUPT) {
        /* When this fails db is NULL, and the next try begins with opening. */
        rc = reopen_database(r);
    } else if (rc == LTN_ERR_NOT_FOUND) {
        /* Deleted, in the worst case since the group was begun: it is written once more. */
        (void)still_stands(r);
    } else if (rc == LTN_ERR_DISK) {
        /* The log's content fits into pages that the file has already: that may make room. */
        rc = ltn_db_checkpoint(r->db, true);
    }
    (void)rc;
    shed(r);
}

static void commit_group(struct ltn_record *r)
{
    struct group g = {.outbox = r->outbox};
    list_init(&g.stored);
    list_init(&g.invalid);
    int rc = 0;
    if (r->db == NULL) {
        rc = reopen_database(r);
    } else if (!still_stands(r) && r->db == NULL) {
        rc = atomic_load(&r->failed_rc);
    }
    if (rc < 0) {
        atomic_store(&r->failed_rc, rc);
        r->next_try_ns = ltn_now_mono_ns() + r->opts.retry_ms * LTN_NS_PER_MS;
        atomic_fetch_add(&r->failed_commits, 1);
        shed(r);
        return;
    }
    g.outbox = r->outbox;
    rc = write_group(r, &g);
    if (rc == 0) {
        finish_group(r, &g);
    } else {
        fail_group(r, &g, rc);
    }
}

/* ---- the thread ---- */

static void receive(struct ltn_record *r)
{
    struct item *i;
    while ((i = ltn_chan_recv(r->windows)) != NULL) {
        list_add(&r->keep[0], i);
    }
    while (r->keep[1].units < GROUP_CALLS && (i = ltn_chan_recv(r->calls)) != NULL) {
        list_add(&r->keep[1], i);
    }
    if (atomic_load(&r->degraded)) {
        /* Nothing may pile up in the channels: the newest count. */
        while ((i = ltn_chan_recv(r->calls)) != NULL) {
            list_add(&r->keep[1], i);
            shed(r);
        }
        shed(r);
    }
}

static bool has_acks(struct ltn_record *r)
{
    (void)pthread_mutex_lock(&r->ack_lock);
    bool any = r->ack_count > 0;
    (void)pthread_mutex_unlock(&r->ack_lock);
    return any || r->taken_count > 0;
}

static void note_size(struct ltn_record *r)
{
    struct ltn_db_size size;
    if (ltn_db_size(r->db, &size) == 0) {
        atomic_store(&r->db_bytes, size.file_bytes);
        atomic_store(&r->used_bytes, (size.pages - size.free_pages) * size.page_bytes);
    }
}

static void upkeep(struct ltn_record *r)
{
    uint64_t now = ltn_now_mono_ns();
    if (now < r->next_upkeep_ns || r->db == NULL || atomic_load(&r->degraded)) {
        return;
    }
    if (!still_stands(r) && r->db == NULL) {
        return;
    }
    struct ltn_pruned p = {0};
    int rc = 0;
    if (r->opts.max_bytes != 0) {
        rc = ltn_prune(r->db, r->opts.max_bytes, &p);
        if (rc < 0) {
            ltn_db_rollback(r->db);
        }
    }
    if (p.windows > 0) {
        ltn_writer_forget(&r->writer); /* processes may be gone */
    }
    atomic_fetch_add(&r->pruned_calls, p.calls);
    atomic_fetch_add(&r->pruned_windows, p.windows);
    atomic_fetch_add(&r->pruned_incidents, p.incidents);
    note_size(r);
    r->next_upkeep_ns = p.more ? now : now + UPKEEP_EVERY_NS;
}

/* Milliseconds until something is due. */
static int wait_ms(const struct ltn_record *r, uint64_t now)
{
    uint64_t due = now + IDLE_MS * LTN_NS_PER_MS;
    if (r->next_try_ns != 0) {
        due = r->next_try_ns < due ? r->next_try_ns : due;
    } else if (r->first_waiting_ns != 0) {
        uint64_t commit = r->first_waiting_ns + r->opts.commit_ms * LTN_NS_PER_MS;
        due = commit < due ? commit : due;
    }
    return due <= now ? 0 : (int)((due - now + LTN_NS_PER_MS - 1) / LTN_NS_PER_MS);
}

static bool is_due(struct ltn_record *r, uint64_t now)
{
    bool waiting = r->keep[0].items > 0 || r->keep[1].items > 0 || has_acks(r);
    if (!waiting) {
        r->first_waiting_ns = 0;
        return false;
    }
    if (r->first_waiting_ns == 0) {
        r->first_waiting_ns = now;
    }
    if (r->next_try_ns != 0) {
        return now >= r->next_try_ns;
    }
    return r->keep[1].units >= GROUP_CALLS ||
           now >= r->first_waiting_ns + r->opts.commit_ms * LTN_NS_PER_MS;
}

static void wait_for_work(struct ltn_record *r)
{
    struct pollfd fds[] = {{.fd = ltn_chan_fd(r->windows), .events = POLLIN},
                           {.fd = ltn_chan_fd(r->calls), .events = POLLIN},
                           {.fd = r->wake_fd, .events = POLLIN}};
    eventfd_t value;
    (void)poll(fds, LTN_ARRAY_SIZE(fds), wait_ms(r, ltn_now_mono_ns()));
    (void)eventfd_read(r->wake_fd, &value);
}

static void *run(void *arg)
{
    struct ltn_record *r = arg;
    (void)pthread_setname_np(pthread_self(), "record");
    while (!atomic_load(&r->stopping)) {
        wait_for_work(r);
        receive(r);
        if (is_due(r, ltn_now_mono_ns())) {
            commit_group(r);
        }
        upkeep(r);
    }
    /* Everything that was taken is written, or counted when it cannot be. */
    do {
        receive(r);
        if (r->keep[0].items > 0 || r->keep[1].items > 0 || has_acks(r)) {
            commit_group(r);
        }
    } while (!atomic_load(&r->degraded) && ltn_chan_stats(r->calls).items > 0);
    list_drop(r, &r->keep[0], LTN_RECORD_DROP_DISK);
    list_drop(r, &r->keep[1], LTN_RECORD_DROP_DISK);
    if (r->db != NULL) {
        int rc = ltn_db_checkpoint(r->db, true);
        (void)rc; /* a reader may hold it back; the log is found at the next start */
        note_size(r);
    }
    return NULL;
}

/* ---- life ---- */

static void set_defaults(struct ltn_record_opts *o)
{
    o->commit_ms = o->commit_ms != 0 ? o->commit_ms : DEFAULT_COMMIT_MS;
    o->retry_ms = o->retry_ms != 0 ? o->retry_ms : DEFAULT_RETRY_MS;
    o->max_queued_windows = o->max_queued_windows != 0 ? o->max_queued_windows : DEFAULT_WINDOWS;
    o->max_queued_batches = o->max_queued_batches != 0 ? o->max_queued_batches : DEFAULT_BATCHES;
    o->max_queued_bytes = o->max_queued_bytes != 0 ? o->max_queued_bytes : DEFAULT_QUEUE_BYTES;
    o->outbox_max_bytes = o->outbox_max_bytes != 0 ? o->outbox_max_bytes : DEFAULT_OUTBOX_BYTES;
    o->outbox_max_age_ns = o->outbox_max_age_ns != 0 ? o->outbox_max_age_ns : DEFAULT_OUTBOX_AGE;
    if (o->max_bytes != 0 && o->outbox_max_bytes > o->max_bytes / 4) {
        o->outbox_max_bytes = o->max_bytes / 4;
    }
}

static int make_channels(struct ltn_record *r)
{
    r->windows = ltn_chan_new(r->opts.max_queued_windows, r->opts.max_queued_bytes);
    r->calls = ltn_chan_new(r->opts.max_queued_batches, r->opts.max_queued_bytes);
    r->acks = calloc(MAX_ACKS, sizeof(*r->acks));
    r->taken = calloc(MAX_ACKS, sizeof(*r->taken));
    r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->outbox_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool ok = r->windows != NULL && r->calls != NULL && r->acks != NULL && r->taken != NULL &&
              r->wake_fd >= 0 && r->outbox_fd >= 0;
    return ok ? 0 : -ENOMEM;
}

int ltn_record_open(const struct ltn_record_opts *opts, struct ltn_record **ret_record,
                    struct ltn_errinfo *info)
{
    struct ltn_record *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    r->opts = *opts;
    r->wake_fd = -1;
    r->outbox_fd = -1;
    (void)pthread_mutex_init(&r->ack_lock, NULL);
    ltn_db_claim_init(&r->claim, LTN_RECORD_APPLICATION_ID, "agent", our_tables);
    r->claim.waits = opts->waits;
    if (opts->lock_wait_ms != 0) {
        r->claim.lock_wait_ms = opts->lock_wait_ms;
    }
    set_defaults(&r->opts);
    list_init(&r->keep[0]);
    list_init(&r->keep[1]);
    if (opts->encoder != NULL) {
        r->encoder = *opts->encoder;
    }
    int rc = 0;
    if (opts->path == NULL || opts->node == NULL || opts->node[0] == '\0' ||
        !ltn_copy_str(r->path, sizeof(r->path), opts->path)) {
        rc = ltn_errinfo_set(info, -EINVAL, "the record needs a path and a node name");
    } else if (make_channels(r) < 0) {
        rc = ltn_errinfo_set(info, -ENOMEM, "out of memory or descriptors");
    } else {
        ltn_text_clean(r->node, sizeof(r->node), opts->node, strlen(opts->node));
        rc = open_database(r, r->moved, info);
    }
    if (rc < 0) {
        ltn_record_close(r);
        return rc;
    }
    atomic_store(&r->replaced_files, r->moved[0] != '\0' ? 1 : 0);
    /* The size as it is on disk, before the first row. */
    upkeep(r);
    r->next_upkeep_ns = 0;
    *ret_record = r;
    return 0;
}

int ltn_record_start(struct ltn_record *r)
{
    int rc = pthread_create(&r->thread, NULL, run, r);
    r->started = rc == 0;
    return -rc;
}

void ltn_record_stop(struct ltn_record *r)
{
    ltn_chan_close(r->windows);
    ltn_chan_close(r->calls);
    (void)pthread_mutex_lock(&r->ack_lock);
    atomic_store(&r->stopping, true);
    (void)pthread_mutex_unlock(&r->ack_lock);
    (void)eventfd_write(r->wake_fd, 1);
    if (r->started) {
        (void)pthread_join(r->thread, NULL);
        r->started = false;
    }
}

void ltn_record_close(struct ltn_record *r)
{
    if (r == NULL) {
        return;
    }
    if (r->windows != NULL && r->calls != NULL) {
        ltn_record_stop(r);
    }
    close_database(r);
    ltn_db_claim_done(&r->claim);
    ltn_chan_free(r->windows, free_item);
    ltn_chan_free(r->calls, free_item);
    if (r->wake_fd >= 0) {
        (void)close(r->wake_fd);
    }
    if (r->outbox_fd >= 0) {
        (void)close(r->outbox_fd);
    }
    (void)pthread_mutex_destroy(&r->ack_lock);
    free(r->acks);
    free(r->taken);
    free(r);
}

const char *ltn_record_moved(const struct ltn_record *r)
{
    return r->moved;
}

const char *ltn_record_path(const struct ltn_record *r)
{
    return r->path;
}

int ltn_record_outbox_fd(const struct ltn_record *r)
{
    return r->outbox_fd;
}

static void read_flow(struct flow *f, struct ltn_record_flow *ret)
{
    /* Outcomes first: what arrives meanwhile then counts as waiting, never as lost twice. */
    uint64_t done = ret->stored = atomic_load(&f->stored);
    for (int i = 0; i < LTN_RECORD_DROPS; i++) {
        ret->dropped[i] = atomic_load(&f->dropped[i]);
        done += ret->dropped[i];
    }
    ret->received = atomic_load(&f->received);
    ret->waiting = ret->received - done;
}

void ltn_record_stats(struct ltn_record *r, struct ltn_record_stats *ret)
{
    struct ltn_record_stats s = {0};
    /* First, as the thread writes them last: when nothing waits the rest is up to date. */
    read_flow(&r->flows[KIND_WINDOW], &s.windows);
    read_flow(&r->flows[KIND_CALLS], &s.calls);
    read_flow(&r->flows[KIND_INCIDENT], &s.incidents);
    read_flow(&r->flows[KIND_STACK], &s.stacks);
    s.db_bytes = atomic_load(&r->db_bytes);
    s.used_bytes = atomic_load(&r->used_bytes);
    s.pruned_calls = atomic_load(&r->pruned_calls);
    s.pruned_windows = atomic_load(&r->pruned_windows);
    s.pruned_incidents = atomic_load(&r->pruned_incidents);
    s.commits = atomic_load(&r->commits);
    s.failed_commits = atomic_load(&r->failed_commits);
    s.replaced_files = atomic_load(&r->replaced_files);
    s.degraded = atomic_load(&r->degraded);
    s.failed_rc = atomic_load(&r->failed_rc);
    s.outbox_rows = atomic_load(&r->outbox_rows);
    s.outbox_bytes = atomic_load(&r->outbox_bytes);
    s.outbox_dropped_bytes_limit = atomic_load(&r->outbox_dropped_bytes);
    s.outbox_dropped_age = atomic_load(&r->outbox_dropped_age);
    s.outbox_dropped_unencodable = atomic_load(&r->outbox_unencodable);
    *ret = s;
}
