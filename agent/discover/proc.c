/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/proc.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"

#define PF_KTHREAD_FLAG 0x00200000u
#define STAT_BYTES      2048
#define STATUS_BYTES    8192
#define CGROUP_BYTES    8192
#define MAX_ANCESTORS   64
/* The line wanted stands behind one number for each interrupt and processor. */
#define KERNEL_STAT_BYTES (1u << 20)

#define CGROUP_ROOT         "/sys/fs/cgroup"
#define CGROUP_ROOT_UNIFIED "/sys/fs/cgroup/unified"

/* Decimal digits at *at, stepping over them; false when there are none or the number is too big. */
static bool take_u64(const char **at, const char *limit, uint64_t *ret)
{
    const char *p = *at;
    uint64_t v = 0;
    while (p < limit && *p >= '0' && *p <= '9') {
        if (v > (UINT64_MAX - 9) / 10) {
            return false;
        }
        v = v * 10 + (uint64_t)(*p++ - '0');
    }
    if (p == *at) {
        return false;
    }
    *at = p;
    *ret = v;
    return true;
}

/* Field `number` (as proc(5) counts, from 4 on) behind the command name. */
static bool stat_field(const char *rest, const char *limit, unsigned number, uint64_t *ret)
{
    /* rest starts at the blank before field 3 (the state). */
    const char *p = rest;
    for (unsigned field = 2; field < number; field++) {
        p = memchr(p, ' ', (size_t)(limit - p));
        if (p == NULL) {
            return false;
        }
        p++;
    }
    return take_u64(&p, limit, ret);
}

int ltn_proc_parse_stat(const char *text, size_t len, struct ltn_proc *ret)
{
    const char *limit = text + len;
    const char *open = memchr(text, '(', len);
    /* The name itself may hold brackets and blanks: its end is the last one. */
    const char *close = memrchr(text, ')', len);
    const char *at = text;
    uint64_t pid;
    uint64_t ppid;
    uint64_t flags;
    struct ltn_proc p = {0};
    if (open == NULL || close == NULL || close <= open || !take_u64(&at, limit, &pid) ||
        pid > INT_MAX || close + 1 >= limit || close[1] != ' ') {
        return LTN_ERR_MALFORMED;
    }
    if (!stat_field(close + 1, limit, 4, &ppid) || ppid > INT_MAX ||
        !stat_field(close + 1, limit, 9, &flags) ||
        !stat_field(close + 1, limit, 22, &p.start_ticks) ||
        !stat_field(close + 1, limit, 23, &p.vsize_bytes)) {
        return LTN_ERR_MALFORMED;
    }
    p.pid = (pid_t)pid;
    p.ppid = (pid_t)ppid;
    p.kernel_thread = (flags & PF_KTHREAD_FLAG) != 0;
    ltn_text_clean(p.comm, sizeof(p.comm), open + 1, (size_t)(close - open - 1));
    *ret = p;
    return 0;
}

/* Number behind "btime " at a line start; false when there is none. */
static bool parse_btime(const char *text, size_t len, uint64_t *ret_s)
{
    static const char key[] = "\nbtime ";
    const char *at = memmem(text, len, key, sizeof(key) - 1);
    if (at == NULL) {
        return false;
    }
    at += sizeof(key) - 1;
    return take_u64(&at, text + len, ret_s) && *ret_s > 0 && *ret_s < UINT64_MAX / LTN_NS_PER_S / 2;
}

static uint64_t boot_unix_s;

/* Once for all: a clock set later must not change who a process is. */
static void find_boot(void)
{
    struct timespec boot;
    char *text = malloc(KERNEL_STAT_BYTES);
    long n = text != NULL ? ltn_file_read_head("/proc/stat", text, KERNEL_STAT_BYTES) : -ENOMEM;
    bool found = n > 0 && parse_btime(text, (size_t)n, &boot_unix_s);
    free(text);
    if (!found && clock_gettime(CLOCK_BOOTTIME, &boot) == 0) {
        /* The nearest second, so that two computations agree. */
        uint64_t up_ns = (uint64_t)boot.tv_sec * LTN_NS_PER_S + (uint64_t)boot.tv_nsec;
        boot_unix_s = (ltn_now_unix_ns() - up_ns + LTN_NS_PER_S / 2) / LTN_NS_PER_S;
    }
}

uint64_t ltn_proc_start_unix_ns(uint64_t start_ticks)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    long hz = sysconf(_SC_CLK_TCK);
    if (hz <= 0 || pthread_once(&once, find_boot) != 0) {
        return 0;
    }
    uint64_t hz_u = (uint64_t)hz;
    return (boot_unix_s + start_ticks / hz_u) * LTN_NS_PER_S +
           start_ticks % hz_u * LTN_NS_PER_S / hz_u;
}

uint64_t ltn_proc_boottime_to_ticks(uint64_t boottime_ns)
{
    long hz = sysconf(_SC_CLK_TCK);
    return hz > 0 ? boottime_ns / (LTN_NS_PER_S / (uint64_t)hz) : 0;
}

/* A process that vanished answers ESRCH or ENOENT, by the call that notices. */
static int gone_or(int rc)
{
    return rc == -ENOENT ? -ESRCH : rc;
}

int ltn_proc_read_stat(pid_t pid, struct ltn_proc *ret)
{
    char path[64];
    char text[STAT_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    long n = ltn_file_read_head(path, text, sizeof(text));
    if (n < 0) {
        return gone_or((int)n);
    }
    struct ltn_proc p;
    int rc = ltn_proc_parse_stat(text, (size_t)n, &p);
    if (rc < 0) {
        return rc;
    }
    p.start_unix_ns = ltn_proc_start_unix_ns(p.start_ticks);
    *ret = p;
    return 0;
}

/* Value behind "Key:\t" at a line start, or NULL. */
static const char *status_value(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            return line + n + 1;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return NULL;
}

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t') {
        p++;
    }
    return p;
}

static int read_status(pid_t pid, struct ltn_proc *p)
{
    char path[64];
    char text[STATUS_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    long n = ltn_file_read_head(path, text, sizeof(text));
    if (n < 0) {
        return gone_or((int)n);
    }
    const char *limit = text + n;
    uint64_t v;
    const char *at = status_value(text, "Uid");
    if (at != NULL && (at = skip_blanks(at), take_u64(&at, limit, &v)) && v <= UINT32_MAX) {
        p->uid = (uid_t)v;
    }
    p->ns_pid = p->pid;
    at = status_value(text, "NSpid");
    for (uint32_t i = 0; at != NULL && i < 33; i++) {
        at = skip_blanks(at);
        if (!take_u64(&at, limit, &v) || v > INT_MAX) {
            break;
        }
        p->ns_pid = (pid_t)v;
        p->pid_ns_level = i;
    }
    return 0;
}

int ltn_proc_read_uid(pid_t pid, uid_t *ret)
{
    struct ltn_proc p = {.pid = pid, .uid = (uid_t)-1};
    int rc = read_status(pid, &p);
    if (rc == 0 && p.uid == (uid_t)-1) {
        rc = LTN_ERR_MALFORMED;
    }
    if (rc == 0) {
        *ret = p.uid;
    }
    return rc;
}

static void read_exe(pid_t pid, struct ltn_proc *p)
{
    char path[64];
    char target[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, target, sizeof(target));
    if (n > 0) {
        ltn_text_clean(p->exe, sizeof(p->exe), target, (size_t)n);
    }
}

/* The cgroup v2 line is "0::/path"; the inode of that directory is the id BPF programs see. */
static void read_cgroup(pid_t pid, struct ltn_proc *p)
{
    static const char *const roots[] = {CGROUP_ROOT, CGROUP_ROOT_UNIFIED};
    char path[64];
    char text[CGROUP_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    if (ltn_file_read_head(path, text, sizeof(text)) < 0) {
        return;
    }
    const char *line = text;
    while (line != NULL && strncmp(line, "0::", 3) != 0) {
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    if (line == NULL || line[3] != '/') {
        return;
    }
    line += 3;
    size_t n = strcspn(line, "\n");
    ltn_text_clean(p->cgroup, sizeof(p->cgroup), line, n);
    if (strstr(p->cgroup, "/..") != NULL) {
        return; /* outside the agent's own cgroup namespace: the path cannot be walked from here */
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(roots); i++) {
        char full[CGROUP_BYTES + 64];
        struct stat st;
        struct statfs fs;
        (void)snprintf(full, sizeof(full), "%s%.*s", roots[i], (int)n, line);
        if (stat(full, &st) == 0 && statfs(roots[i], &fs) == 0 &&
            fs.f_type == CGROUP2_SUPER_MAGIC) {
            p->cgroup_id = st.st_ino;
            return;
        }
    }
}

static uint64_t ns_inode(pid_t pid, const char *name)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

int ltn_proc_read(pid_t pid, struct ltn_proc *ret)
{
    struct ltn_proc p;
    int rc = ltn_proc_read_stat(pid, &p);
    if (rc == 0) {
        rc = read_status(pid, &p);
    }
    if (rc < 0) {
        return rc;
    }
    if (!p.kernel_thread) {
        read_exe(pid, &p);
    }
    read_cgroup(pid, &p);
    p.netns_ino = ns_inode(pid, "net");
    p.pidns_ino = ns_inode(pid, "pid");
    /* The pid may have been handed on while its files were read: then this is nobody's picture. */
    struct ltn_proc again;
    rc = ltn_proc_read_stat(pid, &again);
    if (rc < 0) {
        return rc;
    }
    if (again.start_ticks != p.start_ticks) {
        return -ESRCH;
    }
    *ret = p;
    return 0;
}

static bool on_list(const struct ltn_scope *scope, pid_t pid)
{
    for (size_t i = 0; i < scope->pid_count; i++) {
        if (scope->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

static bool below_cgroup(const char *path, const char *top)
{
    size_t n = strlen(top);
    while (n > 0 && top[n - 1] == '/') {
        n--;
    }
    return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

bool ltn_scope_matches(const struct ltn_scope *scope, const struct ltn_proc *proc,
                       bool parent_in_scope)
{
    if (proc->kernel_thread) {
        return false;
    }
    if (scope->pid_count > 0 && !parent_in_scope && !on_list(scope, proc->pid)) {
        return false;
    }
    if (scope->by_uid && scope->uid != proc->uid) {
        return false;
    }
    if (scope->cgroup_path[0] != '\0') {
        return proc->cgroup[0] != '\0' && below_cgroup(proc->cgroup, scope->cgroup_path);
    }
    return true;
}

bool ltn_scope_has_ancestor(const struct ltn_scope *scope, pid_t pid)
{
    for (int step = 0; step < MAX_ANCESTORS && pid > 0; step++) {
        struct ltn_proc p;
        if (on_list(scope, pid)) {
            return true;
        }
        if (ltn_proc_read_stat(pid, &p) < 0) {
            return false;
        }
        pid = p.ppid;
    }
    return false;
}
