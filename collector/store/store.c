/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/text.h"
#include "sql/checkpoint.h"
#include "sql/claim.h"
#include "store/internal.h"

#define GROUP_MAX_ITEMS     512
#define WAIT_MS             500
#define VERDICTS_MAX        20000
#define DISK_PAUSE_NS       LTN_NS_PER_S
#define PRUNE_EVERY_NS      (60 * LTN_NS_PER_S)
#define PRUNE_ROWS          20000
#define CHECKPOINT_EVERY_NS (30 * LTN_NS_PER_S)
#define LOOK_EVERY_NS       LTN_NS_PER_S

/* A verdict change waiting to be written; kept until it is. */
struct waiting {
    struct waiting *next;
    enum ltn_straggler_change change;
    struct ltn_straggler_verdict v;
};

struct ltn_store {
    struct ltn_store_opts opts;
    char path[LTN_DB_PATH_BYTES];
    struct ltn_db_claim claim;
    struct ltn_writer w; /* its db is NULL while the database cannot be begun anew */
    struct ltn_db_checkpointer *checkpointer; /* of that db */
    bool noticed;                             /* that; said once */
    struct ltn_chan *chan;
    pthread_t thread;
    _Atomic bool running;
    uint64_t pruned_ns, checkpoint_ns, looked_ns; /* writer */
    bool logs_more;                               /* to delete for their age */
    uint64_t began_unix_ns, began_mono_ns;
    _Atomic uint64_t disk_failed_ns; /* monotonic; 0 while writable */
    pthread_mutex_t lock;            /* what follows */
    struct waiting *first, **last;
    struct ltn_store_stats stats;
};

/* ---- verdicts that wait ---- */

int ltn_store_verdict(struct ltn_store *s, enum ltn_straggler_change change,
                      const struct ltn_straggler_verdict *v)
{
    struct waiting *o = malloc(sizeof(*o));
    int rc = 0;
    if (o == NULL)
        return -ENOMEM;
    *o = (struct waiting){NULL, change, *v};
    (void)pthread_mutex_lock(&s->lock);
    if (s->stats.verdicts_waiting >= VERDICTS_MAX) {
        s->stats.verdicts_lost++;
        rc = LTN_ERR_BUSY;
    } else {
        *s->last = o;
        s->last = &o->next;
        s->stats.verdicts_waiting++;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (rc != 0)
        free(o);
    return rc;
}

static struct waiting *take_waiting(struct ltn_store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    struct waiting *all = s->first;
    s->first = NULL;
    s->last = &s->first;
    (void)pthread_mutex_unlock(&s->lock);
    return all;
}

/* Puts them back in front of newer ones. */
static void put_back(struct ltn_store *s, struct waiting *all)
{
    struct waiting **end = &all;
    while (*end != NULL)
        end = &(*end)->next;
    (void)pthread_mutex_lock(&s->lock);
    *end = s->first;
    if (s->first == NULL && all != NULL)
        s->last = end;
    s->first = all;
    (void)pthread_mutex_unlock(&s->lock);
}

static size_t free_waiting(struct waiting *w)
{
    size_t n = 0;
    while (w != NULL) {
        struct waiting *next = w->next;
        free(w);
        w = next;
        n++;
    }
    return n;
}

/* ---- the file ---- */

static void close_database(struct ltn_store *s)
{
    ltn_db_checkpointer_free(s->checkpointer, s->w.db);
    s->checkpointer = NULL;
    ltn_db_close(s->w.db);
    s->w.db = NULL;
}

static int open_database(struct ltn_store *s, char *ret_moved, struct ltn_errinfo *info)
{
    struct ltn_db_opts db = {.path = s->path, .sync_full = s->opts.sync_full};
    int rc = ltn_db_open_or_recover(&db, &s->claim, &s->w.db, ret_moved, info);
    if (rc == 0)
        rc = ltn_db_migrate(s->w.db, ltn_store_migrations, ltn_store_migration_count, info);
    if (rc == 0 && (rc = ltn_logs_open(&s->w)) != 0)
        (void)ltn_errinfo_set(info, rc, "%s: %s", s->path, ltn_db_message(s->w.db));
    if (rc != 0)
        close_database(s);
    else
        s->checkpointer = ltn_db_checkpointer_new(s->w.db);
    return rc;
}

static void notice(struct ltn_store *s, const char *text)
{
    if (s->opts.notice != NULL)
        s->opts.notice(s->opts.notice_ctx, text);
}

/* Opens again after the file was deleted or damaged (why, of ltn_db_look or the engine; 0 when an
 * earlier try failed). */
static int reopen_database(struct ltn_store *s, int why, struct ltn_errinfo *info)
{
    char moved[LTN_DB_PATH_BYTES] = "";
    char text[2 * LTN_DB_PATH_BYTES + 128];
    bool lost = s->w.db == NULL || ltn_db_moved(s->w.db);
    if (s->w.db != NULL)
        ltn_db_claim_file(&s->claim, s->w.db);
    close_database(s);
    ltn_writer_forget(&s->w);
    int rc = open_database(s, moved, info);
    if (rc != 0) {
        (void)snprintf(text, sizeof(text), "%s %s and cannot be begun anew: %s", s->path,
                       why == LTN_ERR_NOT_FOUND ? "was deleted" : "was lost or damaged", info->msg);
        if (!s->noticed)
            notice(s, text);
        s->noticed = true;
        return rc;
    }
    s->noticed = false;
    if (moved[0] == '\0' && !lost)
        return 0; /* as it was */
    s->w.series_anew = true;
    (void)pthread_mutex_lock(&s->lock);
    s->stats.replaced_files++;
    (void)pthread_mutex_unlock(&s->lock);
    if (moved[0] != '\0')
        (void)snprintf(text, sizeof(text), "%s was damaged and moved to %s; a new one was begun",
                       s->path, moved);
    else
        (void)snprintf(text, sizeof(text), "%s was deleted or replaced; opened anew", s->path);
    notice(s, text);
    return 0;
}

/* Makes sure that what is written now can be found again: a database that was deleted or damaged
 * is begun anew. */
static int stand(struct ltn_store *s, struct ltn_errinfo *info)
{
    int rc = s->w.db != NULL ? ltn_db_look(s->w.db) : 0;
    return s->w.db == NULL || rc != 0 ? reopen_database(s, rc, info) : 0;
}

/* ---- writing ---- */

static void note_failure(struct ltn_store *s, int rc, const struct ltn_errinfo *info)
{
    atomic_store(&s->disk_failed_ns, ltn_now_mono_ns());
    (void)pthread_mutex_lock(&s->lock);
    s->stats.failed_commits++;
    s->stats.writable = false;
    const char *detail = info != NULL && info->msg[0] != '\0'         ? info->msg
                         : s->w.db != NULL && rc != LTN_ERR_NOT_FOUND ? ltn_db_message(s->w.db)
                                                                      : "";
    ltn_text_clean(s->stats.error, sizeof(s->stats.error),
                   detail[0] != '\0' ? detail : ltn_err_str(rc),
                   strlen(detail[0] != '\0' ? detail : ltn_err_str(rc)));
    (void)pthread_mutex_unlock(&s->lock);
}

/* Under the lock. */
static void note_logs(struct ltn_store *s)
{
    s->stats.logs_stored = s->w.logs.stored;
    s->stats.logs_repeated = s->w.logs.repeated;
    s->stats.logs_pruned_age = s->w.logs.pruned_age;
    s->stats.logs_pruned_bytes = s->w.logs.pruned_bytes;
    s->stats.log_bytes = s->w.logs.bytes;
}

static int write_all(struct ltn_store *s, struct ltn_store_item **items, size_t n,
                     const struct waiting *verdicts)
{
    int rc = ltn_db_begin(s->w.db);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = items[i]->update != NULL ? ltn_write_update(&s->w, items[i]->update) : 0;
    for (; rc == 0 && verdicts != NULL; verdicts = verdicts->next)
        rc = ltn_write_verdict(&s->w, verdicts->change, &verdicts->v);
    if (rc == 0)
        rc = ltn_write_series(&s->w);
    if (rc == 0)
        rc = ltn_logs_bound(&s->w, s->opts.log_bytes);
    if (rc == 0)
        rc = ltn_db_commit(s->w.db);
    /* Acknowledged is only what can be found. */
    if (rc == 0)
        rc = ltn_db_look(s->w.db);
    ltn_series_written(&s->w, rc == 0);
    return rc;
}

/* One transaction for all; what fails fails as a whole and may be tried again. Any error counts as
 * the disk's: the same data would not be refused for itself. */
static void commit_group(struct ltn_store *s, struct ltn_store_item **items, size_t n)
{
    struct waiting *verdicts = take_waiting(s);
    if (n == 0 && verdicts == NULL)
        return;
    uint64_t began = ltn_now_mono_ns(), rows = s->w.rows;
    struct ltn_log_counts logs;
    struct ltn_errinfo info = {0};
    int rc = stand(s, &info);
    logs = s->w.logs;
    if (rc == 0)
        rc = write_all(s, items, n, verdicts);
    if (rc != 0) {
        note_failure(s, rc, &info);
        if (s->w.db != NULL)
            ltn_db_rollback(s->w.db);
        ltn_writer_forget(&s->w);
        s->w.logs = logs;
        if (s->w.db != NULL && rc == LTN_ERR_CORRUPT && reopen_database(s, rc, &info) != 0)
            note_failure(s, rc, &info);
        put_back(s, verdicts);
    } else {
        size_t written = free_waiting(verdicts);
        atomic_store(&s->disk_failed_ns, 0);
        (void)pthread_mutex_lock(&s->lock);
        s->stats.commits++;
        s->stats.items += n;
        s->stats.rows += s->w.rows - rows;
        s->stats.commit_seconds += (double)(ltn_now_mono_ns() - began) / 1e9;
        s->stats.verdicts_waiting -= written;
        note_logs(s);
        s->stats.writable = true;
        s->stats.error[0] = '\0';
        (void)pthread_mutex_unlock(&s->lock);
    }
    for (size_t i = 0; i < n; i++)
        items[i]->done(items[i], rc == 0 ? 0 : LTN_ERR_DISK);
}

/* Readiness keeps new senders away while the database cannot be written, so a try of its own must
 * find out that it can be again. */
static void try_again(struct ltn_store *s)
{
    int rc = ltn_db_begin(s->w.db);
    if (rc == 0)
        rc = ltn_db_exec(s->w.db, "INSERT INTO meta (key, value) VALUES ('tried', strftime('%s'))"
                                  " ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    if (rc == 0)
        rc = ltn_db_commit(s->w.db);
    if (rc == 0)
        rc = ltn_db_look(s->w.db);
    if (rc != 0) {
        note_failure(s, rc, NULL);
        ltn_db_rollback(s->w.db);
        return;
    }
    atomic_store(&s->disk_failed_ns, 0);
    (void)pthread_mutex_lock(&s->lock);
    s->stats.writable = true;
    s->stats.error[0] = '\0';
    (void)pthread_mutex_unlock(&s->lock);
}

static int prune_one(struct ltn_store *s, const char *sql, uint64_t keep_ns, uint64_t now_ns)
{
    struct ltn_stmt *st;
    if (keep_ns == 0 || keep_ns > now_ns)
        return 0;
    int rc = ltn_db_prepare(s->w.db, sql, &st);
    if (rc != 0)
        return rc;
    ltn_stmt_u64(st, 1, now_ns - keep_ns);
    ltn_stmt_i64(st, 2, PRUNE_ROWS);
    return ltn_stmt_run(st);
}

/* The time that ages are counted to: a clock that was set forward does not age what is kept. */
static uint64_t age_now(const struct ltn_store *s)
{
    uint64_t unix_ns = ltn_now_unix_ns();
    uint64_t counted = s->began_unix_ns + (ltn_now_mono_ns() - s->began_mono_ns);
    return unix_ns < counted ? unix_ns : counted;
}

/* One step; the next follows soon when there is more. */
static void prune_logs(struct ltn_store *s)
{
    uint64_t now = age_now(s), before = s->w.logs.pruned_age;
    struct ltn_log_counts logs = s->w.logs;
    s->logs_more = false;
    if (s->opts.log_keep_ns == 0 || s->opts.log_keep_ns > now)
        return;
    int rc = ltn_db_begin(s->w.db);
    if (rc == 0)
        rc = ltn_logs_expire(&s->w, now - s->opts.log_keep_ns);
    if (rc == 0)
        rc = ltn_db_commit(s->w.db);
    if (rc != 0) {
        note_failure(s, rc, NULL);
        ltn_db_rollback(s->w.db);
        s->w.logs = logs;
        return;
    }
    s->logs_more = s->w.logs.pruned_age > before;
    (void)pthread_mutex_lock(&s->lock);
    note_logs(s);
    (void)pthread_mutex_unlock(&s->lock);
}

static void prune(struct ltn_store *s)
{
    static const char *const windows =
        "DELETE FROM rank_window WHERE (process_id, end_ns) IN (SELECT process_id, end_ns FROM"
        " rank_window WHERE end_ns < ?1 LIMIT ?2)";
    static const char *const incidents =
        "DELETE FROM incident WHERE (node, incident_id, time_ns, state) IN (SELECT node,"
        " incident_id, time_ns, state FROM incident WHERE time_ns < ?1 LIMIT ?2)";
    static const char *const verdicts =
        "DELETE FROM verdict WHERE id IN (SELECT id FROM verdict WHERE at_ns < ?1 LIMIT ?2)";
    static const char *const processes =
        "DELETE FROM process WHERE id IN (SELECT id FROM process WHERE last_seen_ns < ?1 LIMIT ?2)";
    uint64_t now = age_now(s);
    int rc = prune_one(s, windows, s->opts.window_keep_ns, now);
    if (rc == 0)
        rc = prune_one(s, incidents, s->opts.history_keep_ns, now);
    if (rc == 0)
        rc = prune_one(s, verdicts, s->opts.history_keep_ns, now);
    if (rc == 0)
        rc = prune_one(s, processes, s->opts.history_keep_ns, now);
    if (rc == 0)
        rc = ltn_db_vacuum_some(s->w.db, 1000);
    if (rc != 0)
        note_failure(s, rc, NULL);
}

static void upkeep(struct ltn_store *s)
{
    uint64_t now = ltn_now_mono_ns();
    struct ltn_errinfo info = {0};
    /* Also while nothing comes in, so that readiness tells. */
    if (now - s->looked_ns >= LOOK_EVERY_NS) {
        s->looked_ns = now;
        int rc = stand(s, &info);
        if (rc != 0)
            note_failure(s, rc, &info);
    }
    if (s->w.db == NULL)
        return;
    uint64_t failed = atomic_load(&s->disk_failed_ns);
    if (failed != 0 && now - failed >= DISK_PAUSE_NS)
        try_again(s);
    if (now - s->pruned_ns >= PRUNE_EVERY_NS) {
        s->pruned_ns = now;
        prune(s);
        s->logs_more = true;
    }
    if (s->logs_more)
        prune_logs(s);
    if (now - s->checkpoint_ns < CHECKPOINT_EVERY_NS)
        return;
    s->checkpoint_ns = now;
    struct ltn_db_size size;
    int rc = ltn_db_checkpoint(s->w.db, false);
    if ((rc != 0 && rc != LTN_ERR_BUSY) || ltn_db_size(s->w.db, &size) != 0)
        return; /* the next commit will tell */
    (void)pthread_mutex_lock(&s->lock);
    s->stats.file_bytes = size.file_bytes;
    (void)pthread_mutex_unlock(&s->lock);
}

static void *writer_main(void *arg)
{
    struct ltn_store *s = arg;
    for (;;) {
        struct ltn_store_item *items[GROUP_MAX_ITEMS];
        size_t n = 0;
        struct ltn_store_item *first = ltn_chan_recv_wait(s->chan, WAIT_MS);
        while (first != NULL) {
            items[n++] = first;
            first = n < GROUP_MAX_ITEMS ? ltn_chan_recv(s->chan) : NULL;
        }
        commit_group(s, items, n);
        upkeep(s);
        if (n == 0 && !atomic_load(&s->running))
            return NULL;
    }
}

/* ---- life ---- */

int ltn_store_open(const struct ltn_store_opts *opts, struct ltn_store **ret,
                   struct ltn_errinfo *info)
{
    char moved[LTN_DB_PATH_BYTES] = "";
    struct ltn_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    s->opts = *opts;
    s->opts.path = NULL; /* borrowed for this call only */
    s->w.series = opts->series;
    s->last = &s->first;
    s->stats.writable = true;
    s->pruned_ns = s->checkpoint_ns = s->began_mono_ns = ltn_now_mono_ns();
    s->began_unix_ns = ltn_now_unix_ns();
    (void)pthread_mutex_init(&s->lock, NULL);
    ltn_map_init(&s->w.ids.map, LTN_IDS_MAX);
    ltn_db_claim_init(&s->claim, LTN_DB_COLLECTOR, "collector", ltn_store_tables);
    s->claim.waits = opts->notice;
    s->claim.waits_ctx = opts->notice_ctx;
    if (opts->lock_wait_ms != 0)
        s->claim.lock_wait_ms = opts->lock_wait_ms;
    int rc = ltn_copy_str(s->path, sizeof(s->path), opts->path != NULL ? opts->path : "")
                 ? open_database(s, moved, info)
                 : ltn_errinfo_set(info, -ENAMETOOLONG, "the path of the database is too long");
    if (rc == 0) {
        s->chan = ltn_chan_new(opts->queue_items, opts->queue_bytes);
        rc = s->chan == NULL ? ltn_errinfo_set(info, -ENOMEM, "out of memory") : 0;
    }
    if (rc != 0) {
        ltn_store_free(s);
        return rc;
    }
    if (moved[0] != '\0' && info != NULL)
        (void)ltn_errinfo_set(info, 0, "the database was damaged and moved to %s", moved);
    *ret = s;
    return 0;
}

void ltn_store_free(struct ltn_store *s)
{
    if (s == NULL)
        return;
    if (s->running) {
        atomic_store(&s->running, false);
        ltn_chan_close(s->chan);
        (void)pthread_join(s->thread, NULL);
    }
    (void)free_waiting(s->first);
    if (s->chan != NULL)
        ltn_chan_free(s->chan, NULL);
    ltn_map_done(&s->w.ids.map, NULL);
    close_database(s);
    ltn_db_claim_done(&s->claim);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

int ltn_store_check(struct ltn_store *s)
{
    uint64_t failed = atomic_load(&s->disk_failed_ns);
    return failed != 0 && ltn_now_mono_ns() - failed < DISK_PAUSE_NS ? LTN_ERR_DISK : 0;
}

int ltn_store_put(struct ltn_store *s, struct ltn_store_item *item, size_t weight_bytes)
{
    int rc = ltn_store_check(s);
    if (rc == 0)
        rc = ltn_chan_send(s->chan, item, weight_bytes);
    if (rc == 0)
        return 0;
    (void)pthread_mutex_lock(&s->lock);
    if (rc == LTN_ERR_DISK)
        s->stats.refused_disk++;
    else
        s->stats.refused_busy++;
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

int ltn_store_load(struct ltn_store *s, size_t max, const struct ltn_store_sink *sink)
{
    int rc = ltn_load_verdicts(s->w.db, max, sink);
    return rc == 0 ? ltn_load_incidents(s->w.db, max, sink) : rc;
}

int ltn_store_load_series(struct ltn_store *s)
{
    return s->w.series != NULL ? ltn_load_series(&s->w, ltn_now_mono_ns()) : 0;
}

int ltn_store_start(struct ltn_store *s)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    s->running = true;
    int rc = pthread_create(&s->thread, NULL, writer_main, s);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        s->running = false;
    return -rc;
}

void ltn_store_stats(struct ltn_store *s, struct ltn_store_stats *ret)
{
    struct ltn_chan_stats c = ltn_chan_stats(s->chan);
    (void)pthread_mutex_lock(&s->lock);
    *ret = s->stats;
    (void)pthread_mutex_unlock(&s->lock);
    ret->queue_items = c.items;
    ret->queue_bytes = c.bytes;
}
