/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

/* Newer than the system's header may be. */
#define ATTACH_UPROBE_MULTI   48u
#define ATTACH_UPROBE_SESSION 57u

#define CAP_NR_DAC_OVERRIDE       1
#define CAP_NR_DAC_READ_SEARCH    2
#define CAP_NR_SYS_PTRACE         19
#define CAP_NR_SYS_ADMIN          21
#define CAP_NR_PERFMON            38
#define CAP_NR_BPF                39
#define CAP_NR_CHECKPOINT_RESTORE 40

/* Inode numbers of the initial namespaces are fixed in the kernel. */
#define INITIAL_PID_NS_INODE 0xeffffffcu

#define BTF_MAGIC_LE_0 0x9f
#define BTF_MAGIC_LE_1 0xeb

/* What BPF_LINK_CREATE takes for uprobe_multi, as the kernel lays it out. */
struct multi_link_attr {
    uint32_t prog_fd;
    uint32_t target_fd;
    uint32_t attach_type;
    uint32_t flags;
    uint64_t path;
    uint64_t offsets;
    uint64_t ref_ctr_offsets;
    uint64_t cookies;
    uint32_t count;
    uint32_t multi_flags;
    uint32_t pid;
    uint32_t padding;
};
_Static_assert(sizeof(struct multi_link_attr) == 64, "kernel layout");

/* Outcome of one try: 0 or -errno. */
struct tries {
    int filtered; /* bpf(2) never reaches the kernel */
    int multi;
    int multi_pid;
    int session;
    int raw_tp;
    int ptrace;
};

static long sys_bpf(int cmd, void *attr, size_t size)
{
    return syscall(SYS_bpf, cmd, attr, size);
}

const char *ltn_finding_level_name(enum ltn_finding_level level)
{
    static const char *const names[] = {"ok", "warn", "fail"};
    return (unsigned)level < LTN_ARRAY_SIZE(names) ? names[level] : "fail";
}

const char *ltn_cap_name(unsigned cap)
{
    static const char *const names[] = {"CAP_CHOWN",
                                        "CAP_DAC_OVERRIDE",
                                        "CAP_DAC_READ_SEARCH",
                                        "CAP_FOWNER",
                                        "CAP_FSETID",
                                        "CAP_KILL",
                                        "CAP_SETGID",
                                        "CAP_SETUID",
                                        "CAP_SETPCAP",
                                        "CAP_LINUX_IMMUTABLE",
                                        "CAP_NET_BIND_SERVICE",
                                        "CAP_NET_BROADCAST",
                                        "CAP_NET_ADMIN",
                                        "CAP_NET_RAW",
                                        "CAP_IPC_LOCK",
                                        "CAP_IPC_OWNER",
                                        "CAP_SYS_MODULE",
                                        "CAP_SYS_RAWIO",
                                        "CAP_SYS_CHROOT",
                                        "CAP_SYS_PTRACE",
                                        "CAP_SYS_PACCT",
                                        "CAP_SYS_ADMIN",
                                        "CAP_SYS_BOOT",
                                        "CAP_SYS_NICE",
                                        "CAP_SYS_RESOURCE",
                                        "CAP_SYS_TIME",
                                        "CAP_SYS_TTY_CONFIG",
                                        "CAP_MKNOD",
                                        "CAP_LEASE",
                                        "CAP_AUDIT_WRITE",
                                        "CAP_AUDIT_CONTROL",
                                        "CAP_SETFCAP",
                                        "CAP_MAC_OVERRIDE",
                                        "CAP_MAC_ADMIN",
                                        "CAP_SYSLOG",
                                        "CAP_WAKE_ALARM",
                                        "CAP_BLOCK_SUSPEND",
                                        "CAP_AUDIT_READ",
                                        "CAP_PERFMON",
                                        "CAP_BPF",
                                        "CAP_CHECKPOINT_RESTORE"};
    return cap < LTN_ARRAY_SIZE(names) ? names[cap] : NULL;
}

static bool has_cap(const struct ltn_kernel_facts *k, unsigned cap)
{
    return (k->cap_effective >> cap & 1) != 0;
}

/* SYS_ADMIN stands in for those that were split from it. */
static bool has_cap_or_admin(const struct ltn_kernel_facts *k, unsigned cap)
{
    return has_cap(k, cap) || has_cap(k, CAP_NR_SYS_ADMIN);
}

/* ---- trying ---- */

static int read_int_file(const char *path)
{
    char text[32];
    int64_t v;
    if (ltn_file_read_head(path, text, sizeof(text)) < 0) {
        return -1;
    }
    text[strcspn(text, "\n")] = '\0';
    return ltn_parse_i64(text, &v) && v >= INT16_MIN && v <= INT16_MAX ? (int)v : -1;
}

static void read_own_status(struct ltn_kernel_facts *k)
{
    char text[8192];
    if (ltn_file_read_head("/proc/self/status", text, sizeof(text)) < 0) {
        return;
    }
    const char *caps = strstr(text, "\nCapEff:\t");
    if (caps != NULL) {
        k->cap_effective = strtoull(caps + 9, NULL, 16);
    }
    const char *seccomp = strstr(text, "\nSeccomp:\t");
    if (seccomp != NULL) {
        k->seccomp_mode = (uint32_t)strtoul(seccomp + 10, NULL, 10);
    }
}

static bool try_btf(void)
{
    unsigned char magic[2] = {0};
    int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, magic, sizeof(magic));
    (void)close(fd);
    return n == 2 && ((magic[0] == BTF_MAGIC_LE_0 && magic[1] == BTF_MAGIC_LE_1) ||
                      (magic[0] == BTF_MAGIC_LE_1 && magic[1] == BTF_MAGIC_LE_0));
}

/* An attribute larger than any the kernel takes is refused with E2BIG once the call gets there; a
 * system call filter answers before that. Kernels before 6.4 look at the privileges first. */
static int try_reach(void)
{
    union bpf_attr attr = {0};
    if (sys_bpf(BPF_MAP_CREATE, &attr, 1u << 20) >= 0 || errno == E2BIG || errno == EFAULT) {
        return 0;
    }
    return -errno;
}

static int try_map(void)
{
    union bpf_attr attr = {0};
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = 4;
    attr.value_size = 8;
    attr.max_entries = 1;
    long fd = sys_bpf(BPF_MAP_CREATE, &attr, sizeof(attr));
    if (fd < 0) {
        return -errno;
    }
    (void)close((int)fd);
    return 0;
}

/* Loads `return 0`. Descriptor or -errno. */
static int load_trivial(uint32_t prog_type, uint32_t attach_type)
{
    static const struct bpf_insn code[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr attr = {0};
    attr.prog_type = prog_type;
    attr.expected_attach_type = attach_type;
    attr.insns = (uint64_t)(uintptr_t)code;
    attr.insn_cnt = LTN_ARRAY_SIZE(code);
    attr.license = (uint64_t)(uintptr_t) "GPL";
    long fd = sys_bpf(BPF_PROG_LOAD, &attr, sizeof(attr));
    return fd < 0 ? -errno : (int)fd;
}

static int try_load(void)
{
    int fd = load_trivial(BPF_PROG_TYPE_KPROBE, 0);
    if (fd < 0) {
        return fd;
    }
    (void)close(fd);
    return 0;
}

/* Asks for a link on "/", which is no file: a kernel that knows the link type gets as far as EBADF.
 * Nothing can ever be attached by it. */
static int try_multi(uint32_t attach_type, uint32_t pid)
{
    uint64_t offset = 0;
    int prog = load_trivial(BPF_PROG_TYPE_KPROBE, attach_type);
    if (prog < 0) {
        return prog;
    }
    struct multi_link_attr attr = {.prog_fd = (uint32_t)prog,
                                   .attach_type = attach_type,
                                   .path = (uint64_t)(uintptr_t) "/",
                                   .offsets = (uint64_t)(uintptr_t)&offset,
                                   .count = 1,
                                   .pid = pid};
    long fd = sys_bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
    int rc = fd < 0 ? -errno : 0;
    if (fd >= 0) {
        (void)close((int)fd);
    }
    (void)close(prog);
    return rc;
}

static int try_raw_tracepoint(void)
{
    int prog = load_trivial(BPF_PROG_TYPE_RAW_TRACEPOINT, 0);
    if (prog < 0) {
        return prog;
    }
    union bpf_attr attr = {0};
    attr.raw_tracepoint.name = (uint64_t)(uintptr_t) "sched_process_exec";
    attr.raw_tracepoint.prog_fd = (uint32_t)prog;
    long fd = sys_bpf(BPF_RAW_TRACEPOINT_OPEN, &attr, sizeof(attr));
    int rc = fd < 0 ? -errno : 0;
    if (fd >= 0) {
        (void)close((int)fd);
    }
    (void)close(prog);
    return rc;
}

/* The permission is looked at before the file: "/" is refused with EINVAL when it is granted. */
static int try_perf_uprobe(void)
{
    int type = read_int_file("/sys/bus/event_source/devices/uprobe/type");
    if (type < 0) {
        return -ENOENT;
    }
    struct perf_event_attr attr = {0};
    attr.size = sizeof(attr);
    attr.type = (uint32_t)type;
    attr.config1 = (uint64_t)(uintptr_t) "/";
    long fd = syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd >= 0) {
        (void)close((int)fd);
        return 0;
    }
    return errno == EINVAL || errno == ENOENT || errno == EISDIR ? 0 : -errno;
}

/* What discovery needs of other users' processes: their root directory. */
static int try_foreign_root(void)
{
    struct stat st;
    return stat("/proc/1/root/", &st) < 0 ? -errno : 0;
}

static void try_all(struct ltn_kernel_facts *k, struct tries *t)
{
    struct stat ns;
    read_own_status(k);
    k->btf = try_btf();
    t->filtered = try_reach();
    k->bpf_map_error = try_map();
    k->bpf_map = k->bpf_map_error == 0;
    k->bpf_load_error = try_load();
    k->bpf_load = k->bpf_load_error == 0;
    t->multi = try_multi(ATTACH_UPROBE_MULTI, 0);
    t->multi_pid = try_multi(ATTACH_UPROBE_MULTI, UINT32_MAX);
    t->session = try_multi(ATTACH_UPROBE_SESSION, 0);
    k->uprobe_multi = t->multi == -EBADF;
    k->uprobe_multi_pid = k->uprobe_multi && t->multi_pid == -EINVAL;
    k->uprobe_session = t->session == -EBADF;
    k->uprobe_perf_error = try_perf_uprobe();
    k->uprobe_perf = k->uprobe_perf_error == 0;
    t->raw_tp = try_raw_tracepoint();
    k->raw_tracepoint = t->raw_tp == 0;
    t->ptrace = try_foreign_root();
    k->ptrace_scope = read_int_file("/proc/sys/kernel/yama/ptrace_scope");
    k->perf_event_paranoid = read_int_file("/proc/sys/kernel/perf_event_paranoid");
    k->unprivileged_bpf_disabled = read_int_file("/proc/sys/kernel/unprivileged_bpf_disabled");
    k->host_pid_ns = stat("/proc/self/ns/pid", &ns) == 0 && ns.st_ino == INITIAL_PID_NS_INODE;
}

/* ---- saying what it means ---- */

static struct ltn_finding *add(struct ltn_kernel_facts *k, const char *name,
                               enum ltn_finding_level level, const char *value)
{
    static struct ltn_finding none;
    if (k->finding_count >= LTN_KERNEL_FINDINGS) {
        return &none;
    }
    struct ltn_finding *f = &k->findings[k->finding_count++];
    *f = (struct ltn_finding){.name = name, .level = level};
    (void)ltn_copy_str(f->value, sizeof(f->value), value);
    return f;
}

static void advise(struct ltn_finding *f, const char *fmt, ...) ltn_printf(2, 3);
static void advise(struct ltn_finding *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(f->advice, sizeof(f->advice), fmt, ap);
    va_end(ap);
}

static void say_btf(struct ltn_kernel_facts *k)
{
    if (k->btf) {
        (void)add(k, "btf", LTN_FINDING_OK, "kernel type information present");
        return;
    }
    struct ltn_finding *f = add(k, "btf", LTN_FINDING_FAIL, "/sys/kernel/btf/vmlinux is missing");
    advise(f, "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, and mount /sys in the container");
}

/* Why bpf(2) was refused: by a filter, for want of a capability, or by a security module. */
static void advise_bpf(struct ltn_kernel_facts *k, const struct tries *t, struct ltn_finding *f,
                       int error)
{
    bool caps = has_cap_or_admin(k, CAP_NR_BPF) && has_cap_or_admin(k, CAP_NR_PERFMON);
    bool refused = t->filtered == -EPERM || t->filtered == -EACCES || t->filtered == -ENOSYS;
    if (refused && k->seccomp_mode == 2 && (caps || t->filtered != -EPERM)) {
        advise(f, "the seccomp profile blocks the bpf system call: use the runtime's default "
                  "profile of a newer release, a profile that allows bpf and perf_event_open, or "
                  "Unconfined");
    } else if (error == -ENOSYS) {
        advise(f, "this kernel has no bpf system call: CONFIG_BPF_SYSCALL=y is needed");
    } else if (error == -EPERM && !caps) {
        advise(f, "grant CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), or run as root%s",
               k->seccomp_mode == 2 ? "; a seccomp profile is active and may block bpf as well"
                                    : "");
    } else if (error == -EPERM || error == -EACCES) {
        advise(f,
               "the capabilities are there, so a security module or kernel lockdown refuses: see "
               "/sys/kernel/security/lockdown and the audit log");
    } else if (error == -ENOMEM) {
        advise(f, "raise the memory limit of the agent: BPF maps count against it");
    } else {
        advise(f, "unexpected answer of the kernel: please report it");
    }
}

static void say_bpf(struct ltn_kernel_facts *k, const struct tries *t)
{
    char value[160];
    if (k->bpf_map && k->bpf_load) {
        (void)add(k, "bpf", LTN_FINDING_OK, "maps and tracing programs can be made");
        return;
    }
    int error = k->bpf_map ? k->bpf_load_error : k->bpf_map_error;
    (void)snprintf(value, sizeof(value), "%s: %s",
                   k->bpf_map ? "loading a tracing program" : "creating a map", strerror(-error));
    advise_bpf(k, t, add(k, "bpf", LTN_FINDING_FAIL, value), error);
}

static void append(char *out, size_t size, const char *word)
{
    size_t n = strlen(out);
    if (n < size) {
        (void)snprintf(out + n, size - n, "%s%s", n == 0 ? "" : " ", word);
    }
}

static void say_capabilities(struct ltn_kernel_facts *k)
{
    static const unsigned wanted[] = {CAP_NR_BPF, CAP_NR_PERFMON, CAP_NR_SYS_PTRACE,
                                      CAP_NR_DAC_READ_SEARCH, CAP_NR_CHECKPOINT_RESTORE};
    char value[160] = "";
    char missing[160] = "";
    bool vital = false;
    if (has_cap(k, CAP_NR_SYS_ADMIN)) {
        append(value, sizeof(value), ltn_cap_name(CAP_NR_SYS_ADMIN));
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(wanted); i++) {
        unsigned cap = wanted[i];
        bool split_off = cap != CAP_NR_SYS_PTRACE && cap != CAP_NR_DAC_READ_SEARCH;
        bool held = has_cap(k, cap) || (split_off && has_cap(k, CAP_NR_SYS_ADMIN)) ||
                    (cap == CAP_NR_DAC_READ_SEARCH && has_cap(k, CAP_NR_DAC_OVERRIDE));
        if (has_cap(k, cap)) {
            append(value, sizeof(value), ltn_cap_name(cap));
        }
        if (!held) {
            append(missing, sizeof(missing), ltn_cap_name(cap));
            vital = vital || cap == CAP_NR_BPF || cap == CAP_NR_PERFMON;
        }
    }
    enum ltn_finding_level level = missing[0] == '\0' ? LTN_FINDING_OK
                                   : vital            ? LTN_FINDING_FAIL
                                                      : LTN_FINDING_WARN;
    struct ltn_finding *f =
        add(k, "capabilities", level, value[0] == '\0' ? "none of those that help" : value);
    if (missing[0] != '\0') {
        advise(f, "grant %s", missing);
    }
}

static void say_uprobes(struct ltn_kernel_facts *k, const struct tries *t)
{
    struct ltn_finding *f;
    if (k->uprobe_session) {
        (void)add(k, "uprobe_session", LTN_FINDING_OK, "entry and return by one program");
    } else if (t->session == -EPERM || t->session == -EACCES) {
        f = add(k, "uprobe_session", LTN_FINDING_WARN, "not permitted, so not known");
        advise(f, "see the line on bpf");
    } else {
        (void)add(k, "uprobe_session", LTN_FINDING_OK, "not offered; two programs do the same");
    }
    if (k->uprobe_multi) {
        (void)add(k, "uprobe_multi", LTN_FINDING_OK,
                  k->uprobe_multi_pid
                      ? "offered, with a filter by process"
                      : "offered; its pid filter selects threads, so it is not used");
    } else if (t->multi == -EPERM || t->multi == -EACCES) {
        f = add(k, "uprobe_multi", LTN_FINDING_WARN, "not permitted, so not known");
        advise(f, "see the line on bpf");
    } else {
        f = add(k, "uprobe_multi", LTN_FINDING_WARN, "not offered by this kernel");
        advise(f, "kernel 6.6 or newer attaches with fewer privileges and detaches at once; this "
                  "one takes 0.1 s a probe to detach");
    }
    if (k->uprobe_perf) {
        (void)add(k, "uprobe_perf", LTN_FINDING_OK, "permitted");
        return;
    }
    bool fatal = !k->uprobe_multi;
    f = add(k, "uprobe_perf", fatal ? LTN_FINDING_FAIL : LTN_FINDING_OK,
            k->uprobe_perf_error == -ENOENT ? "not offered by this kernel"
            : fatal                         ? "not permitted"
                                            : "not permitted, not needed");
    if (fatal && k->uprobe_perf_error == -ENOENT) {
        advise(f, "use a kernel with CONFIG_UPROBE_EVENTS=y");
    } else if (fatal) {
        advise(f, "grant CAP_SYS_ADMIN, which uprobes through perf_event_open need, or use kernel "
                  "6.6 or newer, where CAP_BPF and CAP_PERFMON are enough");
    }
}

static void say_tracepoint(struct ltn_kernel_facts *k, const struct tries *t)
{
    char value[160];
    if (k->raw_tracepoint) {
        (void)add(k, "raw_tracepoint", LTN_FINDING_OK, "attaches");
        return;
    }
    (void)snprintf(value, sizeof(value), "does not attach: %s", strerror(-t->raw_tp));
    struct ltn_finding *f = add(k, "raw_tracepoint", LTN_FINDING_FAIL, value);
    advise(f, "see the line on bpf; without it nothing is known of the host's scheduler");
}

static void say_ptrace(struct ltn_kernel_facts *k, const struct tries *t)
{
    char value[160];
    if (k->ptrace_scope < 0) {
        (void)snprintf(value, sizeof(value), "no Yama; process 1 %s",
                       t->ptrace == 0 ? "can be read" : "cannot be read");
    } else {
        (void)snprintf(value, sizeof(value), "ptrace_scope %d; process 1 %s", k->ptrace_scope,
                       t->ptrace == 0 ? "can be read" : "cannot be read");
    }
    struct ltn_finding *f =
        add(k, "ptrace", t->ptrace == 0 ? LTN_FINDING_OK : LTN_FINDING_WARN, value);
    if (t->ptrace != 0 && has_cap(k, CAP_NR_SYS_PTRACE)) {
        advise(f, "CAP_SYS_PTRACE is held, yet process 1 refuses: a security module may forbid it "
                  "(AppArmor: set the profile to Unconfined)");
    } else if (t->ptrace != 0) {
        advise(f, "grant CAP_SYS_PTRACE to find libraries in containers and to read ranks and "
                  "Python stacks");
    }
}

static void say_surroundings(struct ltn_kernel_facts *k)
{
    char value[160];
    (void)snprintf(value, sizeof(value), "%d", k->perf_event_paranoid);
    (void)add(k, "perf_event_paranoid", LTN_FINDING_OK,
              k->perf_event_paranoid < 0 ? "not known" : value);
    struct ltn_finding *f;
    if (k->host_pid_ns) {
        (void)add(k, "pid_namespace", LTN_FINDING_OK, "the host's");
    } else {
        f = add(k, "pid_namespace", LTN_FINDING_WARN, "not the host's");
        advise(f, "set hostPID: true, else processes outside this container stay unseen");
    }
    struct stat st;
    if (stat("/sys/fs/cgroup/cgroup.controllers", &st) == 0 ||
        stat("/sys/fs/cgroup/unified/cgroup.controllers", &st) == 0) {
        (void)add(k, "cgroup", LTN_FINDING_OK, "version 2");
    } else {
        f = add(k, "cgroup", LTN_FINDING_WARN, "version 2 is not mounted");
        advise(f,
               "mount cgroup2 at /sys/fs/cgroup, else containers are told by their processes only");
    }
}

void ltn_kernel_probe(struct ltn_kernel_facts *ret)
{
    struct ltn_kernel_facts k = {0};
    struct tries t = {0};
    try_all(&k, &t);
    say_btf(&k);
    say_bpf(&k, &t);
    say_capabilities(&k);
    say_uprobes(&k, &t);
    say_tracepoint(&k, &t);
    say_ptrace(&k, &t);
    say_surroundings(&k);
    *ret = k;
}
