/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "discover/kernel.h"

static const struct ltn_finding *finding(const struct ltn_kernel_facts *k, const char *name)
{
    for (size_t i = 0; i < k->finding_count; i++) {
        if (strcmp(k->findings[i].name, name) == 0) {
            return &k->findings[i];
        }
    }
    fail_msg("no finding %s", name);
    return NULL;
}

/* Probes in a child that gives up something first; the facts come back through shared memory. */
static void probe_in_child(void (*give_up)(void), struct ltn_kernel_facts *ret)
{
    struct ltn_kernel_facts *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        give_up();
        ltn_kernel_probe(shared);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    *ret = *shared;
    (void)munmap(shared, sizeof(*shared));
}

static void test_here(void **state)
{
    (void)state;
    struct ltn_kernel_facts k;
    ltn_kernel_probe(&k);
    assert_true(k.finding_count >= 9);
    for (size_t i = 0; i < k.finding_count; i++) {
        const struct ltn_finding *f = &k.findings[i];
        print_message("%-5s %-20s %s%s%s\n", ltn_finding_level_name(f->level), f->name, f->value,
                      f->advice[0] == '\0' ? "" : " -> ", f->advice);
        assert_true(f->value[0] != '\0');
        assert_true(f->level == LTN_FINDING_OK || f->advice[0] != '\0');
    }
    assert_int_equal(k.btf, access("/sys/kernel/btf/vmlinux", R_OK) == 0);
    if (getuid() == 0 && k.bpf_load) {
        assert_true(k.raw_tracepoint);
        assert_int_equal(finding(&k, "bpf")->level, LTN_FINDING_OK);
        assert_true(k.uprobe_multi || !k.uprobe_session); /* the newer implies the older */
    }
}

static void no_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    if (syscall(SYS_capset, &header, data) < 0) {
        _exit(1);
    }
}

static void test_without_capabilities(void **state)
{
    (void)state;
    struct ltn_kernel_facts k;
    probe_in_child(no_capabilities, &k);
    assert_int_equal(k.cap_effective, 0);
    assert_false(k.bpf_load);
    assert_int_equal(k.bpf_load_error, -EPERM);
    assert_false(k.uprobe_multi);
    assert_false(k.uprobe_session);
    assert_false(k.raw_tracepoint);
    const struct ltn_finding *f = finding(&k, "bpf");
    assert_int_equal(f->level, LTN_FINDING_FAIL);
    assert_non_null(strstr(f->advice, "CAP_BPF"));
    f = finding(&k, "capabilities");
    assert_int_equal(f->level, LTN_FINDING_FAIL);
    assert_non_null(strstr(f->advice, "CAP_SYS_PTRACE"));
    assert_int_equal(finding(&k, "ptrace")->level, LTN_FINDING_WARN);
    assert_int_equal(finding(&k, "uprobe_perf")->level, LTN_FINDING_FAIL);
}

/* The least that is enough on a kernel with uprobe_multi. */
static void few_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    static const unsigned caps[] = {CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE};
    for (size_t i = 0; i < 3; i++) {
        data[caps[i] / 32].effective |= 1u << (caps[i] % 32);
        data[caps[i] / 32].permitted |= 1u << (caps[i] % 32);
    }
    if (syscall(SYS_capset, &header, data) < 0) {
        _exit(1);
    }
}

static void test_with_few_capabilities(void **state)
{
    (void)state;
    struct ltn_kernel_facts root;
    struct ltn_kernel_facts k;
    ltn_kernel_probe(&root);
    if (!root.bpf_load || !root.uprobe_multi) {
        print_message("SKIPPED: needs root and a kernel with uprobe_multi\n");
        skip();
    }
    probe_in_child(few_capabilities, &k);
    assert_true(k.bpf_load);
    assert_true(k.uprobe_multi);
    assert_int_equal(k.uprobe_session, root.uprobe_session);
    assert_int_equal(finding(&k, "bpf")->level, LTN_FINDING_OK);
    const struct ltn_finding *f = finding(&k, "capabilities");
    assert_int_equal(f->level, LTN_FINDING_WARN);
    assert_non_null(strstr(f->value, "CAP_BPF CAP_PERFMON CAP_SYS_PTRACE"));
    assert_string_equal(f->advice, "grant CAP_DAC_READ_SEARCH CAP_CHECKPOINT_RESTORE");
    /* Perf uprobes may be refused, and that is fine. */
    assert_int_equal(finding(&k, "uprobe_perf")->level, LTN_FINDING_OK);
}

/* A system call filter as old container engines have it. */
static void block_bpf(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = 4, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0) {
        _exit(1);
    }
}

static void test_seccomp(void **state)
{
    (void)state;
    struct ltn_kernel_facts k;
    if (getuid() != 0) {
        skip();
    }
    probe_in_child(block_bpf, &k);
    assert_false(k.bpf_map);
    assert_int_equal(k.bpf_map_error, -EPERM);
    assert_int_equal(k.seccomp_mode, 2);
    const struct ltn_finding *f = finding(&k, "bpf");
    assert_int_equal(f->level, LTN_FINDING_FAIL);
    assert_non_null(strstr(f->advice, "seccomp profile blocks the bpf system call"));
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ltn_cap_name(CAP_BPF), "CAP_BPF");
    assert_string_equal(ltn_cap_name(CAP_SYS_ADMIN), "CAP_SYS_ADMIN");
    assert_string_equal(ltn_cap_name(CAP_CHECKPOINT_RESTORE), "CAP_CHECKPOINT_RESTORE");
    assert_string_equal(ltn_cap_name(0), "CAP_CHOWN");
    assert_null(ltn_cap_name(41));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_here),
        cmocka_unit_test(test_without_capabilities),
        cmocka_unit_test(test_with_few_capabilities),
        cmocka_unit_test(test_seccomp),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
