/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>
#include <stdlib.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdbool.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/err.h"
#include "discover/proc.h"

static void test_self(void **state)
{
    (void)state;
    struct ltn_proc p;
    char exe[256] = "";
    char cgroup[1024] = "";
    assert_int_equal(ltn_proc_read(getpid(), &p), 0);
    assert_int_equal(p.pid, getpid());
    assert_int_equal(p.ppid, getppid());
    assert_int_equal(p.uid, getuid());
    assert_int_equal(p.ns_pid, getpid());
    assert_int_equal(p.pid_ns_level, 0);
    assert_false(p.kernel_thread);
    assert_true(p.vsize_bytes > 0);
    assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
    assert_string_equal(p.exe, exe);
    struct stat st;
    assert_int_equal(stat("/proc/self/ns/net", &st), 0);
    assert_int_equal(p.netns_ino, st.st_ino);
    uint64_t now = ltn_now_unix_ns();
    assert_true(p.start_unix_ns <= now + LTN_NS_PER_S);
    assert_true(now - p.start_unix_ns < 300 * LTN_NS_PER_S || p.start_unix_ns > now);
    FILE *f = fopen("/proc/self/cgroup", "r");
    assert_non_null(f);
    char line[1024];
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(cgroup, sizeof(cgroup), "%s", line + 3);
        }
    }
    (void)fclose(f);
    assert_string_equal(p.cgroup, cgroup);
}

static void test_gone(void **state)
{
    (void)state;
    struct ltn_proc p;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(ltn_proc_read(pid, &p), -ESRCH);
    assert_int_equal(ltn_proc_read_stat(pid, &p), -ESRCH);
}

static int stat_of(const char *text, struct ltn_proc *p)
{
    return ltn_proc_parse_stat(text, strlen(text), p);
}

static void test_stat_text(void **state)
{
    (void)state;
    struct ltn_proc p;
    assert_int_equal(stat_of("12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 "
                             "1048576 99 18446744073709551615 1",
                             &p),
                     0);
    assert_int_equal(p.pid, 12);
    assert_int_equal(p.ppid, 1);
    assert_int_equal(p.start_ticks, 9876);
    assert_int_equal(p.vsize_bytes, 1048576);
    assert_string_equal(p.comm, "a) b");
    assert_false(p.kernel_thread);
    assert_int_equal(
        stat_of("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0", &p), 0);
    assert_true(p.kernel_thread);
    static const char *const bad[] = {"",
                                      "12",
                                      "12 (a",
                                      "12 a) S",
                                      "12 (a)",
                                      "12 (a) ",
                                      "12 (a) S 1 12",
                                      "x (a) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98 1",
                                      "12 (a) S -1 12 12 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 98 1",
                                      "99999999999 (a) S 1 1 1 0 -1 4 1 2 3 4 5 6 7 8 9 0 1 0 9 1",
                                      ")(12 1 2 3 4 5 6 7"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (stat_of(bad[i], &p) != LTN_ERR_MALFORMED) {
            fail_msg("accepted: %s", bad[i]);
        }
    }
}

/* A child with a hostile name, in a pid namespace of its own. */
static void test_nasty_child(void **state)
{
    (void)state;
    int gate[2];
    int up[2];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pipe(up), 0);
    struct clone_args args = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0) {
        print_message("SKIPPED: no right to make a pid namespace\n");
        skip();
    }
    if (pid == 0) {
        char c = 'x';
        (void)close(gate[1]);
        (void)prctl(PR_SET_NAME, ") S 1 (\x1b[2J");
        if (setuid(12345) < 0 || write(up[1], &c, 1) != 1) {
            _exit(1);
        }
        while (read(gate[0], &c, 1) > 0) {
        }
        _exit(0);
    }
    char c;
    assert_int_equal(read(up[0], &c, 1), 1);
    struct ltn_proc p;
    assert_int_equal(ltn_proc_read(pid, &p), 0);
    assert_int_equal(p.ppid, getpid());
    assert_string_equal(p.comm, ") S 1 (?[2J");
    assert_int_equal(p.uid, 12345);
    assert_int_equal(p.ns_pid, 1);
    assert_int_equal(p.pid_ns_level, 1);
    struct ltn_proc self;
    assert_int_equal(ltn_proc_read(getpid(), &self), 0);
    assert_true(p.pidns_ino != 0 && p.pidns_ino != self.pidns_ino);
    (void)close(gate[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(gate[0]);
    (void)close(up[0]);
    (void)close(up[1]);
}

static void test_cgroup_id(void **state)
{
    (void)state;
    const char *root = access("/sys/fs/cgroup/cgroup.procs", W_OK) == 0 ? "/sys/fs/cgroup"
                                                                        : "/sys/fs/cgroup/unified";
    char dir[64];
    (void)snprintf(dir, sizeof(dir), "%s/cgroup.procs", root);
    bool writable = access(dir, W_OK) == 0;
    (void)snprintf(dir, sizeof(dir), "%s/ltn-test-XXXXXX", root);
    if (!writable || mkdtemp(dir) == NULL) {
        print_message("SKIPPED: no writable cgroup v2\n");
        skip();
    }
    struct child c;
    child_start(&c, FIXTURES "/discover_child", NULL);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%d", (int)c.pid);
    assert_int_equal(fclose(f), 0);
    struct stat st;
    assert_int_equal(stat(dir, &st), 0);
    struct ltn_proc p;
    assert_int_equal(ltn_proc_read(c.pid, &p), 0);
    assert_string_equal(p.cgroup, dir + strlen(root));
    assert_int_equal(p.cgroup_id, st.st_ino);
    child_end(&c);
    assert_int_equal(rmdir(dir), 0);
}

static void test_scope(void **state)
{
    (void)state;
    struct ltn_scope scope = {0};
    struct ltn_proc p = {.pid = 5, .uid = 1000};
    (void)snprintf(p.cgroup, sizeof(p.cgroup), "/kube/pod1/c1");
    assert_true(ltn_scope_matches(&scope, &p, false));
    p.kernel_thread = true;
    assert_false(ltn_scope_matches(&scope, &p, true));
    p.kernel_thread = false;
    scope.pids[0] = 4;
    scope.pid_count = 1;
    assert_false(ltn_scope_matches(&scope, &p, false));
    assert_true(ltn_scope_matches(&scope, &p, true));
    scope.pids[1] = 5;
    scope.pid_count = 2;
    assert_true(ltn_scope_matches(&scope, &p, false));
    scope.by_uid = true;
    scope.uid = 1001;
    assert_false(ltn_scope_matches(&scope, &p, true));
    scope.uid = 1000;
    assert_true(ltn_scope_matches(&scope, &p, true));
    (void)snprintf(scope.cgroup_path, sizeof(scope.cgroup_path), "/kube/pod");
    assert_false(ltn_scope_matches(&scope, &p, true));
    (void)snprintf(scope.cgroup_path, sizeof(scope.cgroup_path), "/kube/pod1/");
    assert_true(ltn_scope_matches(&scope, &p, true));
    (void)snprintf(scope.cgroup_path, sizeof(scope.cgroup_path), "/");
    assert_true(ltn_scope_matches(&scope, &p, true));
    p.cgroup[0] = '\0';
    assert_false(ltn_scope_matches(&scope, &p, true));
}

static void test_ancestors(void **state)
{
    (void)state;
    struct child c;
    child_start(&c, FIXTURES "/discover_child", NULL);
    char answer[64];
    child_say(&c, "fork", "", answer, sizeof(answer));
    pid_t grandchild = (pid_t)strtol(answer, NULL, 10);
    struct ltn_scope scope = {.pids = {getpid()}, .pid_count = 1};
    assert_true(ltn_scope_has_ancestor(&scope, grandchild));
    assert_true(ltn_scope_has_ancestor(&scope, c.pid));
    assert_true(ltn_scope_has_ancestor(&scope, getpid()));
    assert_false(ltn_scope_has_ancestor(&scope, getppid()));
    scope.pids[0] = c.pid;
    assert_true(ltn_scope_has_ancestor(&scope, grandchild));
    assert_false(ltn_scope_has_ancestor(&scope, getpid()));
    child_end(&c);
}

/* The start says which incarnation it is: it follows from what the kernel states, not from when
 * one asks. */
static void test_start_is_an_identity(void **state)
{
    (void)state;
    char line[256];
    unsigned long long btime_s = 0;
    FILE *f = fopen("/proc/stat", "r");
    assert_non_null(f);
    while (btime_s == 0 && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "btime ", 6) == 0) {
            btime_s = strtoull(line + 6, NULL, 10);
        }
    }
    (void)fclose(f);
    assert_true(btime_s > 0);
    struct ltn_proc one;
    struct ltn_proc two;
    assert_int_equal(ltn_proc_read(getpid(), &one), 0);
    assert_int_equal(ltn_proc_read_stat(getpid(), &two), 0);
    assert_true(one.start_unix_ns == two.start_unix_ns);
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    assert_true(one.start_unix_ns ==
                btime_s * LTN_NS_PER_S + one.start_ticks * (LTN_NS_PER_S / hz));
    assert_true(ltn_proc_boottime_to_ticks(one.start_ticks * (LTN_NS_PER_S / hz) + 1) ==
                one.start_ticks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self),        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_stat_text),   cmocka_unit_test(test_cgroup_id),
        cmocka_unit_test(test_scope),       cmocka_unit_test(test_ancestors),
        cmocka_unit_test(test_nasty_child), cmocka_unit_test(test_start_is_an_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
