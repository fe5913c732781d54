/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "discover/scan.h"

#define MAX_SEEN 256

/* What one or more scans reported, with what matters copied. */
struct seen {
    size_t count;
    struct {
        enum ltn_scan_kind kind;
        pid_t pid;
        uint32_t lib;
        enum ltn_lib_kind lib_kind;
        unsigned embeds;
        uint64_t start_ticks;
    } e[MAX_SEEN];
};

static void note(const struct ltn_scan_event *event, void *arg)
{
    struct seen *s = arg;
    if (s->count == MAX_SEEN) {
        return; /* a busy machine seen whole: the tests that count look at a few processes */
    }
    s->e[s->count].kind = event->kind;
    s->e[s->count].pid = event->proc == NULL ? 0 : event->proc->pid;
    s->e[s->count].start_ticks = event->proc == NULL ? 0 : event->proc->start_ticks;
    s->e[s->count].lib = event->lib == NULL ? 0 : event->lib->id;
    s->e[s->count].lib_kind = event->lib == NULL ? LTN_LIB_NONE : event->lib->kind;
    s->e[s->count].embeds = event->lib == NULL ? 0 : event->lib->embeds;
    s->count++;
}

static size_t times(const struct seen *s, enum ltn_scan_kind kind, pid_t pid)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        n += s->e[i].kind == kind && s->e[i].pid == pid;
    }
    return n;
}

static size_t times_lib(const struct seen *s, enum ltn_scan_kind kind, pid_t pid,
                        enum ltn_lib_kind lib_kind)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        n += s->e[i].kind == kind && s->e[i].pid == pid && s->e[i].lib_kind == lib_kind;
    }
    return n;
}

/* The clock of the scanner is the test's: no waiting. */
static uint64_t test_clock = 1000 * LTN_NS_PER_S;

static struct seen scan(struct ltn_scanner *s, unsigned seconds_later)
{
    struct seen seen = {0};
    test_clock += seconds_later * LTN_NS_PER_S;
    assert_int_equal(ltn_scanner_scan(s, test_clock, note, &seen), 0);
    return seen;
}

static struct ltn_scanner *scanner_for(pid_t pid)
{
    struct ltn_scope scope = {.pids = {pid}, .pid_count = 1};
    struct ltn_scanner *s = ltn_scanner_new(&scope);
    assert_non_null(s);
    return s;
}

static void test_life_of_a_process(void **state)
{
    (void)state;
    struct child c;
    struct ltn_scan_stats stats;
    child_start(&c, FIXTURES "/discover_child", NULL);
    struct ltn_scanner *s = scanner_for(c.pid);
    struct seen seen = scan(s, 0);
    assert_int_equal(seen.count, 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, c.pid), 1);
    assert_false(ltn_scanner_has_cuda(s, c.pid));

    int cuda = child_open(&c, FIXTURES "/libcuda.so.1");
    (void)child_open(&c, FIXTURES "/libcudart.so.12");
    seen = scan(s, 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, c.pid, LTN_LIB_CUDA), 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, c.pid, LTN_LIB_CUDART), 1);
    assert_int_equal(times(&seen, LTN_SCAN_LIB_NEW, 0), 2);
    assert_int_equal(seen.count, 4);
    assert_true(ltn_scanner_has_cuda(s, c.pid));
    ltn_scanner_stats(s, &stats);
    assert_int_equal(stats.procs_in_scope, 1);
    assert_int_equal(stats.procs_with_cuda, 1);
    assert_true(stats.procs_now > 1);

    /* Nothing changed: the maps are not read again. */
    uint64_t reads = stats.maps_read_total;
    seen = scan(s, 5);
    assert_int_equal(seen.count, 0);
    ltn_scanner_stats(s, &stats);
    assert_int_equal(stats.maps_read_total, reads);
    seen = scan(s, 61);
    assert_int_equal(seen.count, 0);
    ltn_scanner_stats(s, &stats);
    assert_int_equal(stats.maps_read_total, reads + 1);

    child_close(&c, cuda);
    ltn_scanner_poke(s, c.pid); /* without waiting for the interval */
    seen = scan(s, 0);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_UNMAPPED, c.pid, LTN_LIB_CUDA), 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_GONE, 0, LTN_LIB_CUDA), 1);
    assert_int_equal(seen.count, 2);

    child_end(&c);
    seen = scan(s, 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_UNMAPPED, c.pid, LTN_LIB_CUDART), 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_GONE, c.pid), 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_GONE, 0, LTN_LIB_CUDART), 1);
    assert_int_equal(seen.e[0].kind, LTN_SCAN_LIB_UNMAPPED);
    assert_int_equal(seen.e[1].kind, LTN_SCAN_PROC_GONE);
    assert_null(ltn_scanner_proc(s, c.pid));
    ltn_scanner_free(s);
}

static void test_children_and_sharing(void **state)
{
    (void)state;
    struct child c;
    struct child other;
    char answer[64];
    child_start(&c, FIXTURES "/discover_child", NULL);
    child_start(&other, FIXTURES "/discover_child", NULL);
    (void)child_open(&c, FIXTURES "/libnccl.so.2");
    (void)child_open(&other, FIXTURES "/libnccl.so.2");
    struct ltn_scanner *s = scanner_for(c.pid);
    struct seen seen = scan(s, 0);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, other.pid), 0);
    child_say(&c, "fork", "", answer, sizeof(answer));
    pid_t grandchild = (pid_t)strtol(answer, NULL, 10);
    seen = scan(s, 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, grandchild), 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, grandchild, LTN_LIB_NCCL), 1);
    assert_int_equal(times(&seen, LTN_SCAN_LIB_NEW, 0), 0); /* the same file */
    size_t pos = 0;
    const struct ltn_lib *lib = ltn_libs_next(ltn_scanner_libs(s), &pos);
    assert_non_null(lib);
    assert_int_equal(lib->user_count, 2);
    assert_false(ltn_lib_has_user(lib, other.pid));
    pos = 0;
    size_t walked = 0;
    while (ltn_scanner_next(s, &pos) != NULL) {
        walked++;
    }
    assert_int_equal(walked, 2);
    child_end(&c);
    child_end(&other);
    ltn_scanner_free(s);
}

static void test_exec(void **state)
{
    (void)state;
    struct child c;
    char answer[64];
    child_start(&c, FIXTURES "/discover_child", NULL);
    (void)child_open(&c, FIXTURES "/libcuda.so.1");
    struct ltn_scanner *s = scanner_for(c.pid);
    (void)scan(s, 0);
    child_say(&c, "exec ", FIXTURES "/discover_child_embeds", answer, sizeof(answer));
    assert_string_equal(answer, "ready");
    struct seen seen = scan(s, 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_EXEC, c.pid), 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_GONE, c.pid), 0);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_UNMAPPED, c.pid, LTN_LIB_CUDA), 1);
    assert_string_equal(ltn_scanner_proc(s, c.pid)->exe, FIXTURES "/discover_child_embeds");
    /* The runtime inside is found before the program opens the driver. */
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, c.pid, LTN_LIB_EMBEDDED), 1);
    for (size_t i = 0; i < seen.count; i++) {
        if (seen.e[i].lib_kind == LTN_LIB_EMBEDDED) {
            assert_int_equal(seen.e[i].embeds, LTN_EMBEDS_CUDART);
        }
    }
    seen = scan(s, 61); /* looked at again, still there */
    assert_int_equal(seen.count, 0);
    child_end(&c);
    ltn_scanner_free(s);
}

static void test_uid_scope(void **state)
{
    (void)state;
    int gate[2];
    int up[2];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) { /* becomes another user on command, as a container's first process does */
        char c = 'x';
        (void)close(gate[1]);
        if (read(gate[0], &c, 1) != 1 || setuid(54321) < 0 || write(up[1], &c, 1) != 1) {
            _exit(1);
        }
        while (read(gate[0], &c, 1) > 0) {
        }
        _exit(0);
    }
    if (getuid() != 0) {
        (void)close(gate[1]);
        (void)waitpid(pid, NULL, 0);
        skip();
    }
    struct ltn_scope scope = {.by_uid = true, .uid = 54321};
    struct ltn_scanner *s = ltn_scanner_new(&scope);
    struct seen seen = scan(s, 0);
    assert_int_equal(seen.count, 0);
    char c = 'x';
    assert_int_equal(write(gate[1], &c, 1), 1);
    assert_int_equal(read(up[0], &c, 1), 1);
    seen = scan(s, 1);
    assert_int_equal(seen.count, 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, pid), 1);
    (void)close(gate[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    seen = scan(s, 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_GONE, pid), 1);
    ltn_scanner_free(s);
    (void)close(gate[0]);
    (void)close(up[0]);
    (void)close(up[1]);
}

/* Makes a process with the pid wanted, which must be free. It waits for the gate. 0 when not
 * permitted. */
static pid_t fork_as(pid_t wanted, int gate_read, int gate_write)
{
    pid_t set[] = {wanted};
    struct clone_args args = {
        .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)set, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        char c;
        (void)close(gate_write);
        while (read(gate_read, &c, 1) > 0) {
        }
        _exit(0);
    }
    return pid < 0 ? 0 : (pid_t)pid;
}

/* A pid that is handed on between two scans is another process. */
static void test_pid_reuse(void **state)
{
    (void)state;
    struct child c;
    int gate[2];
    child_start(&c, FIXTURES "/discover_child", NULL);
    struct ltn_scope scope = {.pids = {getpid()}, .pid_count = 1};
    struct ltn_scanner *s = ltn_scanner_new(&scope);
    struct seen seen = scan(s, 0);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, c.pid), 1);
    uint64_t first_start = ltn_scanner_proc(s, c.pid)->start_ticks;
    usleep(20 * 1000); /* the start time has a resolution of 10 ms */
    child_end(&c);
    assert_int_equal(pipe(gate), 0);
    pid_t again = fork_as(c.pid, gate[0], gate[1]);
    if (again == 0) {
        print_message("SKIPPED: not permitted to choose a pid\n");
    } else {
        seen = scan(s, 1);
        assert_int_equal(times(&seen, LTN_SCAN_PROC_GONE, again), 1);
        assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, again), 1);
        assert_int_not_equal(ltn_scanner_proc(s, again)->start_ticks, first_start);
        (void)close(gate[1]);
        assert_int_equal(waitpid(again, NULL, 0), again);
        (void)close(gate[0]);
    }
    ltn_scanner_free(s);
    if (again == 0) {
        skip();
    }
}

static void test_given_file(void **state)
{
    (void)state;
    struct child c;
    child_start(&c, FIXTURES "/discover_child_embeds", NULL);
    struct ltn_scanner *s = scanner_for(c.pid);
    struct seen seen;
    struct ltn_lib *lib;
    assert_int_equal(ltn_libs_give(ltn_scanner_libs(s), FIXTURES "/discover_child_embeds", &lib),
                     0);
    seen = scan(s, 0);
    assert_int_equal(times(&seen, LTN_SCAN_LIB_NEW, 0), 0);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, c.pid, LTN_LIB_EMBEDDED), 1);
    assert_true(ltn_lib_has_user(lib, c.pid));
    child_end(&c);
    seen = scan(s, 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_UNMAPPED, c.pid, LTN_LIB_EMBEDDED), 1);
    assert_int_equal(times(&seen, LTN_SCAN_LIB_GONE, 0), 0); /* the user asked for it */
    ltn_scanner_free(s);
}

/* One process at once, without a scan: new, changed, replaced, gone. */
static void test_look(void **state)
{
    (void)state;
    struct child a;
    struct child b;
    struct child c;
    char answer[64];
    struct seen seen = {0};
    struct ltn_scope scope = {.pid_count = 3};
    child_start(&a, FIXTURES "/discover_child", NULL);
    child_start(&b, FIXTURES "/discover_child", NULL);
    child_start(&c, FIXTURES "/discover_child", NULL);
    scope.pids[0] = a.pid;
    scope.pids[1] = b.pid;
    scope.pids[2] = c.pid;
    struct ltn_scanner *s = ltn_scanner_new(&scope);
    /* In an order that puts one before, one behind and one between those known. */
    (void)child_open(&b, FIXTURES "/libcudart.so.12");
    ltn_scanner_look(s, b.pid, test_clock, note, &seen);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, b.pid), 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, b.pid, LTN_LIB_CUDART), 1);
    ltn_scanner_look(s, c.pid, test_clock, note, &seen);
    ltn_scanner_look(s, a.pid, test_clock, note, &seen);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, a.pid), 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, c.pid), 1);
    assert_non_null(ltn_scanner_proc(s, a.pid));
    assert_non_null(ltn_scanner_proc(s, b.pid));
    assert_non_null(ltn_scanner_proc(s, c.pid));
    size_t before = seen.count;
    ltn_scanner_look(s, b.pid, test_clock, note, &seen);
    assert_int_equal(seen.count, before);
    /* The program is known to carry nothing; the one that it becomes is not. */
    assert_true(ltn_scanner_program_is_plain(s, a.pid));
    child_say(&a, "exec ", FIXTURES "/discover_child_embeds", answer, sizeof(answer));
    assert_string_equal(answer, "ready");
    assert_false(ltn_scanner_program_is_plain(s, a.pid));
    seen.count = 0;
    ltn_scanner_look(s, a.pid, test_clock, note, &seen);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_EXEC, a.pid), 1);
    assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, a.pid, LTN_LIB_EMBEDDED), 1);
    /* A scan agrees with what was seen one by one. */
    seen = scan(s, 0);
    assert_int_equal(seen.count, 0);
    pid_t gone = c.pid;
    child_end(&c);
    ltn_scanner_look(s, gone, test_clock, note, &seen);
    assert_int_equal(seen.count, 0);
    seen = scan(s, 1);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_GONE, gone), 1);
    child_end(&a);
    child_end(&b);
    ltn_scanner_free(s);
}

/* When nobody tells of mappings, a process that was quiet for long is found by the next scan. */
static void test_look_at_all(void **state)
{
    (void)state;
    struct child c;
    child_start(&c, FIXTURES "/discover_child", NULL);
    struct ltn_scanner *s = scanner_for(c.pid);
    for (int i = 0; i < 40; i++) {
        (void)scan(s, 1);
    }
    ltn_scanner_look_at_all(s, true);
    for (int i = 0; i < 5; i++) {
        int handle = child_open(&c, FIXTURES "/libcudart.so.12");
        struct seen seen = scan(s, 1);
        assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_MAPPED, c.pid, LTN_LIB_CUDART), 1);
        child_close(&c, handle);
        seen = scan(s, 1);
        assert_int_equal(times_lib(&seen, LTN_SCAN_LIB_GONE, 0, LTN_LIB_CUDART), 1);
    }
    child_end(&c);
    ltn_scanner_free(s);
}

static void test_everything(void **state)
{
    (void)state;
    struct ltn_scope scope = {0};
    struct ltn_scanner *s = ltn_scanner_new(&scope);
    struct ltn_scan_stats stats;
    static struct seen seen;
    memset(&seen, 0, sizeof(seen));
    test_clock += LTN_NS_PER_S;
    assert_int_equal(ltn_scanner_scan(s, test_clock, note, &seen), 0);
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, getpid()), 0); /* never itself */
    assert_int_equal(ltn_scanner_proc(s, getppid())->pid, getppid());
    assert_null(ltn_scanner_proc(s, getpid()));
    assert_int_equal(times(&seen, LTN_SCAN_PROC_NEW, 2), 0); /* kthreadd */
    ltn_scanner_stats(s, &stats);
    assert_int_equal(stats.scans_total, 1);
    assert_true(stats.procs_in_scope > 0 && stats.procs_in_scope < stats.procs_now);
    ltn_scanner_free(s);
    ltn_scanner_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life_of_a_process),
        cmocka_unit_test(test_children_and_sharing),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_look_at_all),
        cmocka_unit_test(test_uid_scope),
        cmocka_unit_test(test_pid_reuse),
        cmocka_unit_test(test_given_file),
        cmocka_unit_test(test_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
