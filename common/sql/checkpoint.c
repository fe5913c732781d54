/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints by a thread and connection of their own. What a commit appends to the log need not
 * reach the disk at once (synchronous=NORMAL), but a checkpoint waits for the disk; made inside a
 * commit, as the engine does by itself, everybody who waits for that commit waits for the disk too.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sql/checkpoint.h"
#include "sql/internal.h"

#define DUE_PAGES     1000  /* what the engine begins at */
#define CEILING_PAGES 16384 /* the log begins anew only when it was moved whole: made to happen */

struct ltn_db_checkpointer {
    sqlite3 *handle; /* of the thread alone once it runs */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    /* under the lock */
    bool due, working, stop;
};

static void *thread_main(void *arg)
{
    struct ltn_db_checkpointer *c = arg;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (!c->due) {
            (void)pthread_cond_wait(&c->wake, &c->lock);
            continue;
        }
        c->due = false;
        c->working = true;
        (void)pthread_mutex_unlock(&c->lock);
        /* What fails here fails for the commits as well, and they tell. */
        (void)sqlite3_wal_checkpoint_v2(c->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        (void)pthread_mutex_lock(&c->lock);
        c->working = false;
        (void)pthread_cond_signal(&c->idle);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Two at once cannot be: the second would move nothing, and the log would grow on. */
static void wait_for_thread(struct ltn_db_checkpointer *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->due = false;
    while (c->working) {
        (void)pthread_cond_wait(&c->idle, &c->lock);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

/* After each commit, on the committing thread, which waits here for a checkpoint only at the
 * ceiling: the lock is never held through one. */
static int on_commit(void *arg, sqlite3 *handle, const char *name, int pages)
{
    struct ltn_db_checkpointer *c = arg;
    if (pages >= CEILING_PAGES) {
        wait_for_thread(c);
        (void)sqlite3_wal_checkpoint_v2(handle, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    } else if (pages >= DUE_PAGES) {
        (void)pthread_mutex_lock(&c->lock);
        c->due = true;
        (void)pthread_cond_signal(&c->wake);
        (void)pthread_mutex_unlock(&c->lock);
    }
    return SQLITE_OK;
}

/* Through the engine alone: a descriptor of the file closed elsewhere in the process would drop the
 * locks of its connections. */
static bool open_handle(struct ltn_db_checkpointer *c, const char *path)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                SQLITE_OPEN_NOFOLLOW;
    return sqlite3_open_v2(path, &c->handle, flags, NULL) == SQLITE_OK &&
           sqlite3_exec(c->handle,
                        "PRAGMA synchronous=NORMAL; PRAGMA cache_size=-64;"
                        "SELECT 1 FROM sqlite_master LIMIT 1",
                        NULL, NULL, NULL) == SQLITE_OK &&
           sqlite3_db_config(c->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) == SQLITE_OK;
}

static bool start(struct ltn_db_checkpointer *c)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&c->thread, NULL, thread_main, c);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

struct ltn_db_checkpointer *ltn_db_checkpointer_new(struct ltn_db *db)
{
    struct ltn_db_checkpointer *c = db->path[0] != '\0' ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->wake, NULL);
    (void)pthread_cond_init(&c->idle, NULL);
    if (!open_handle(c, db->path) || !start(c)) {
        (void)sqlite3_close(c->handle);
        (void)pthread_cond_destroy(&c->wake);
        (void)pthread_cond_destroy(&c->idle);
        (void)pthread_mutex_destroy(&c->lock);
        free(c);
        return NULL;
    }
    (void)sqlite3_wal_hook(db->handle, on_commit, c); /* in place of the engine's own */
    return c;
}

void ltn_db_checkpointer_free(struct ltn_db_checkpointer *c, struct ltn_db *db)
{
    if (c == NULL) {
        return;
    }
    (void)sqlite3_wal_autocheckpoint(db->handle, DUE_PAGES); /* takes the hook's place */
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_signal(&c->wake);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    (void)sqlite3_close(c->handle);
    (void)pthread_cond_destroy(&c->wake);
    (void)pthread_cond_destroy(&c->idle);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}
