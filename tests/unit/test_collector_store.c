/* SPDX-License-Identifier: Apache-2.0 */
/* The record: totals that only grow, verdicts that come back, many threads that put. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "db_dir.h"

#include "sql/db.h"
#include "store/store.h"

static _Atomic unsigned notices;

static void on_notice(void *ctx, const char *text)
{
    (void)ctx;
    assert_non_null(strstr(text, path));
    notices++;
}

static struct ltn_store *open_store(void)
{
    struct ltn_store_opts o = {
        .path = path, .queue_items = 64, .queue_bytes = 1 << 20, .notice = on_notice};
    struct ltn_errinfo info = {0, ""};
    struct ltn_store *s = NULL;
    int rc = ltn_store_open(&o, &s, &info);
    if (rc != 0)
        fail_msg("%s", info.msg);
    return s;
}

struct item {
    struct ltn_store_item base;
    struct ltn_update update;
    struct ltn_update_resource res;
    struct ltn_update_op op;
    sem_t done;
    int rc;
};

static void on_done(struct ltn_store_item *base, int rc)
{
    struct item *i = (struct item *)base;
    i->rc = rc;
    (void)sem_post(&i->done);
}

static void prepare(struct item *i, const char *node, uint64_t calls)
{
    memset(i, 0, sizeof(*i));
    i->op = (struct ltn_update_op){.source = "cuda",
                                   .op = "cudaMalloc",
                                   .calls = calls,
                                   .errors = calls / 10,
                                   .bytes = calls * 8,
                                   .has_counts = true};
    i->res = (struct ltn_update_resource){.node = node,
                                          .cluster = "",
                                          .instance = "i",
                                          .version = "1",
                                          .sequence = calls,
                                          .has_sequence = true,
                                          .end_ns = 1000 + calls,
                                          .is_process = true,
                                          .pid = 7,
                                          .proc_start_ns = 3,
                                          .comm = "python3",
                                          .job = "j",
                                          .rank = 1,
                                          .world_size = 2,
                                          .local_rank = 0,
                                          .gpu_uuid = "",
                                          .ops = &i->op};
    i->res.steps =
        (struct ltn_update_rank){.present = true, .step_ns = 2, .self_ns = 1, .coverage = 1};
    i->update = (struct ltn_update){.received_ns = 50, .resources = &i->res};
    i->base = (struct ltn_store_item){&i->update, on_done};
    (void)sem_init(&i->done, 0, 0);
}

static int put_and_wait(struct ltn_store *s, const char *node, uint64_t calls)
{
    struct item i;
    prepare(&i, node, calls);
    while (ltn_store_put(s, &i.base, 100) != 0)
        (void)usleep(100);
    (void)sem_wait(&i.done);
    (void)sem_destroy(&i.done);
    return i.rc;
}

static int64_t ask(const char *sql)
{
    struct ltn_db *db = NULL;
    struct ltn_errinfo info;
    int64_t v = -1;
    assert_int_equal(ltn_db_open_readonly(path, &db, &info), 0);
    assert_int_equal(ltn_db_get_i64(db, sql, &v), 0);
    ltn_db_close(db);
    return v;
}

static void totals_only_grow(void **state)
{
    (void)state;
    struct ltn_store *s = open_store();
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(put_and_wait(s, "n1", 100), 0);
    assert_int_equal(ask("SELECT calls FROM op_counts WHERE node = 'n1'"), 100);
    assert_int_equal(put_and_wait(s, "n1", 250), 0);
    assert_int_equal(put_and_wait(s, "n1", 180), 0); /* late */
    assert_int_equal(put_and_wait(s, "n1", 250), 0); /* again */
    ltn_store_free(s);
    s = open_store();
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(put_and_wait(s, "n2", 5), 0);
    ltn_store_free(s);
    assert_int_equal(ask("SELECT calls FROM op_counts WHERE node = 'n1'"), 250);
    assert_int_equal(ask("SELECT bytes FROM op_counts WHERE node = 'n1'"), 2000);
    assert_int_equal(ask("SELECT count(*) FROM op_counts"), 2);
    assert_int_equal(ask("SELECT count(*) FROM rank_windows WHERE node = 'n1'"), 3);
    assert_int_equal(ask("SELECT sequence FROM nodes WHERE name = 'n1'"), 250);
}

static void another_start_of_the_agent_counts_on(void **state)
{
    (void)state;
    struct ltn_store *s = open_store();
    struct item i;
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(put_and_wait(s, "n1", 100), 0);
    for (uint64_t calls = 30; calls <= 60; calls += 15) {
        prepare(&i, "n1", calls);
        i.res.instance = "second";
        assert_int_equal(ltn_store_put(s, &i.base, 100), 0);
        (void)sem_wait(&i.done);
        (void)sem_destroy(&i.done);
        assert_int_equal(i.rc, 0);
    }
    ltn_store_free(s);
    assert_int_equal(ask("SELECT calls FROM op_counts"), 160);
    assert_int_equal(ask("SELECT bytes FROM op_counts"), 1280);
}

struct kept {
    size_t verdicts, incidents;
    struct ltn_straggler_verdict last;
};

static void on_verdict(void *ctx, const struct ltn_straggler_verdict *v)
{
    struct kept *k = ctx;
    k->verdicts++;
    k->last = *v;
}

static void on_incident(void *ctx, const struct ltn_update_incident *i)
{
    struct kept *k = ctx;
    (void)i;
    k->incidents++;
}

static void verdicts_come_back(void **state)
{
    struct ltn_straggler_verdict v = {.job = "j",
                                      .group = "g",
                                      .key = "3",
                                      .node = "n",
                                      .rank = 3,
                                      .cause = "cpu_contention",
                                      .tier = "nvml",
                                      .opened_at_ns = 10,
                                      .updated_at_ns = 20,
                                      .explained_share = 0.9,
                                      .effect_pct = 33,
                                      .method = LTN_METHOD_GPU_CLOCK};
    (void)state;
    struct ltn_store *s = open_store();
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(ltn_store_verdict(s, LTN_VERDICT_OPENED, &v), 0);
    v.effect_pct = 44;
    assert_int_equal(ltn_store_verdict(s, LTN_VERDICT_UPDATED, &v), 0);
    v.opened_at_ns = 30;
    v.effect_pct = 55;
    assert_int_equal(ltn_store_verdict(s, LTN_VERDICT_OPENED, &v), 0);
    assert_int_equal(put_and_wait(s, "n1", 1), 0);
    ltn_store_free(s);
    assert_int_equal(ask("SELECT count(*) FROM verdicts"), 3); /* append-only */
    s = open_store();
    struct kept k = {0};
    struct ltn_store_sink sink = {&k, on_verdict, on_incident};
    assert_int_equal(ltn_store_load(s, 10, &sink), 0);
    ltn_store_free(s);
    assert_int_equal(k.verdicts, 2);
    assert_string_equal(k.last.cause, "cpu_contention");
    assert_string_equal(k.last.tier, "nvml");
    assert_int_equal(k.last.method, LTN_METHOD_GPU_CLOCK);
    assert_true(k.last.effect_pct == 55);
    assert_int_equal(k.last.opened_at_ns, 30);
}

struct putter {
    struct ltn_store *s;
    int n;
};

static void *put_many(void *arg)
{
    struct putter *p = arg;
    char node[16];
    (void)snprintf(node, sizeof(node), "t%d", p->n);
    for (uint64_t i = 1; i <= 100; i++)
        if (put_and_wait(p->s, node, i) != 0)
            return arg;
    return NULL;
}

static void threads_put_and_all_is_there(void **state)
{
    pthread_t t[4];
    struct putter p[4];
    (void)state;
    struct ltn_store *s = open_store();
    assert_int_equal(ltn_store_start(s), 0);
    for (int i = 0; i < 4; i++) {
        p[i] = (struct putter){s, i};
        assert_int_equal(pthread_create(&t[i], NULL, put_many, &p[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *bad = NULL;
        assert_int_equal(pthread_join(t[i], &bad), 0);
        assert_null(bad);
    }
    struct ltn_store_stats st;
    ltn_store_stats(s, &st);
    assert_int_equal(st.items, 400);
    assert_true(st.commits <= 400 && st.writable);
    ltn_store_free(s);
    assert_int_equal(ask("SELECT sum(calls) FROM op_counts"), 400);
    assert_int_equal(ask("SELECT count(*) FROM rank_windows"), 400);
}

/* As a sender does: what comes back is put again. */
static void put_until_stored(struct ltn_store *s, const char *node, uint64_t calls)
{
    while (put_and_wait(s, node, calls) != 0)
        (void)usleep(1000);
}

static void what_is_acknowledged_after_a_deletion_is_there(void **state)
{
    (void)state;
    struct ltn_store *s = open_store();
    struct ltn_store_stats st;
    char moved[128];
    notices = 0;
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(put_and_wait(s, "n1", 100), 0);
    assert_int_equal(unlink(path), 0);
    put_until_stored(s, "n2", 7);
    assert_int_equal(ask("SELECT calls FROM op_counts WHERE node = 'n2'"), 7);
    (void)snprintf(moved, sizeof(moved), "%s/elsewhere", dir);
    assert_int_equal(rename(path, moved), 0);
    put_until_stored(s, "n3", 8);
    assert_int_equal(ask("SELECT calls FROM op_counts WHERE node = 'n3'"), 8);
    ltn_store_stats(s, &st);
    assert_true(st.writable);
    assert_int_equal(st.replaced_files, 2);
    assert_int_equal(notices, 2);
    ltn_store_free(s);
}

static void damage_while_running_begins_a_new_file(void **state)
{
    (void)state;
    struct ltn_store *s = open_store();
    struct ltn_store_stats st;
    char log[128];
    char noise[8192];
    memset(noise, 0x5a, sizeof(noise));
    notices = 0;
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(put_and_wait(s, "n1", 100), 0);
    (void)snprintf(log, sizeof(log), "%s-wal", path);
    const char *const names[] = {path, log};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++) {
        int fd = open(names[i], O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
        (void)close(fd);
    }
    put_until_stored(s, "n2", 7);
    assert_int_equal(ask("SELECT calls FROM op_counts WHERE node = 'n2'"), 7);
    ltn_store_stats(s, &st);
    assert_int_equal(st.replaced_files, 1);
    assert_int_equal(notices, 1);
    ltn_store_free(s);
}

/* What cannot be stored where it can be found comes back as retryable, and readiness says so, until
 * it can be again; without anybody sending. */
static void a_foreign_file_in_its_place_makes_it_unwritable(void **state)
{
    (void)state;
    struct ltn_store *s = open_store();
    struct ltn_store_stats st;
    char text[16] = "";
    notices = 0;
    assert_int_equal(ltn_store_start(s), 0);
    assert_int_equal(put_and_wait(s, "n1", 100), 0);
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    assert_int_equal(put_and_wait(s, "n2", 7), LTN_ERR_DISK);
    ltn_store_stats(s, &st);
    assert_false(st.writable);
    assert_non_null(strstr(st.error, "not a database"));
    assert_int_equal(pread(fd, text, sizeof(text), 0), 4);
    assert_memory_equal(text, "mine", 4);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    do {
        (void)usleep(1000);
        ltn_store_stats(s, &st);
    } while (!st.writable);
    assert_int_equal(notices, 2);
    put_until_stored(s, "n2", 7);
    ltn_store_free(s);
    assert_int_equal(ask("SELECT calls FROM op_counts"), 7);
}

static void files_of_others_and_second_writers_are_refused(void **state)
{
    (void)state;
    struct ltn_store_opts o = {
        .path = path, .queue_items = 64, .queue_bytes = 1 << 20, .lock_wait_ms = 1};
    struct ltn_errinfo info = {0};
    struct ltn_store *second = NULL;
    struct ltn_store *s = open_store();
    assert_int_equal(ltn_store_open(&o, &second, &info), LTN_ERR_BUSY);
    assert_non_null(strstr(info.msg, "another collector (pid "));
    ltn_store_free(s);
    assert_int_equal(ask("PRAGMA application_id"), 0x4c544e43);
    struct ltn_db *db = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, &info), 0);
    assert_int_equal(ltn_db_exec(db, "PRAGMA application_id=0"), 0);
    ltn_db_close(db);
    s = open_store(); /* as older versions left it */
    ltn_store_free(s);
    assert_int_equal(ask("PRAGMA application_id"), 0x4c544e43);
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, &info), 0);
    assert_int_equal(ltn_db_exec(db, "PRAGMA application_id=0x4c544e52"), 0);
    ltn_db_close(db);
    assert_int_equal(ltn_store_open(&o, &second, &info), LTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(info.msg, "node's database"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(totals_only_grow, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(another_start_of_the_agent_counts_on, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(verdicts_come_back, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(threads_put_and_all_is_there, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(what_is_acknowledged_after_a_deletion_is_there, make_dir,
                                        drop_dir),
        cmocka_unit_test_setup_teardown(damage_while_running_begins_a_new_file, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_foreign_file_in_its_place_makes_it_unwritable, make_dir,
                                        drop_dir),
        cmocka_unit_test_setup_teardown(files_of_others_and_second_writers_are_refused, make_dir,
                                        drop_dir),
    };
    return LTN_RUN_TESTS(tests);
}
