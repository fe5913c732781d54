/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/scan.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"

#define MAX_PROCS           65536u
#define MAX_LIB_FILES       1024u
#define LIBS_A_PROCESS      32
#define FIRST_INTERVAL_S    1u
#define LAST_INTERVAL_S     10u
#define OUTSIDER_INTERVAL_S 60u /* processes out of scope: who moves into it does so when young */
#define MAPS_CUDA_NS        (60 * LTN_NS_PER_S)  /* maps are read after so long even when the */
#define MAPS_OTHER_NS       (300 * LTN_NS_PER_S) /* address space kept its size */

/* What is remembered of every process, in scope or not. */
struct entry {
    pid_t pid;
    pid_t ppid;
    bool kernel_thread;
    bool by_pid; /* on the pid list or below one that is */
    bool poked;
    bool maps_denied;
    uint8_t interval_s;
    uint8_t lib_count;
    uint64_t dir_ino; /* inode of /proc/PID: another one means another process */
    uint64_t start_ticks;
    uint64_t next_check_ns;
    uint64_t last_maps_ns; /* 0 = never */
    uint64_t pages;        /* size of the address space then */
    uint64_t image_start;  /* first mapping then: another one tells an exec */
    uint64_t image_ino;
    uint64_t plain_exe_ino; /* its program was looked into and is of no interest; 0 = none yet */
    struct ltn_proc *proc;  /* NULL = not in scope */
    struct ltn_lib **libs;  /* lib_count files it maps, room for LIBS_A_PROCESS */
};

struct ltn_scanner {
    struct ltn_scope scope;
    struct ltn_libs *libs;
    struct entry **entries; /* ascending pid */
    size_t count;
    struct ltn_buf maps;
    struct ltn_scan_stats stats;
    pid_t self;
    bool look_at_all;
};

/* One scan in progress. */
struct round {
    struct ltn_scanner *s;
    uint64_t now_ns;
    ltn_scan_fn fn;
    void *arg;
};

/* One directory of /proc. */
struct listed {
    pid_t pid;
    uint64_t ino;
};

static void emit(const struct round *r, enum ltn_scan_kind kind, const struct ltn_proc *proc,
                 const struct ltn_lib *lib)
{
    struct ltn_scan_event event = {.kind = kind, .proc = proc, .lib = lib};
    r->fn(&event, r->arg);
}

struct ltn_scanner *ltn_scanner_new(const struct ltn_scope *scope)
{
    struct ltn_scanner *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->libs = ltn_libs_new(MAX_LIB_FILES);
    if (s->libs == NULL) {
        free(s);
        return NULL;
    }
    s->scope = *scope;
    s->self = getpid();
    ltn_buf_init(&s->maps, LTN_MAPS_MAX_BYTES);
    return s;
}

static void entry_free(struct entry *e)
{
    free(e->proc);
    free(e->libs);
    free(e);
}

void ltn_scanner_free(struct ltn_scanner *s)
{
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        entry_free(s->entries[i]);
    }
    free(s->entries);
    ltn_libs_free(s->libs);
    ltn_buf_done(&s->maps);
    free(s);
}

/* Index of the pid, or of the place where it belongs. */
static size_t place_of(struct entry *const *entries, size_t count, pid_t pid)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (entries[mid]->pid < pid) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static struct entry *find_entry(struct entry *const *entries, size_t count, pid_t pid)
{
    size_t at = place_of(entries, count, pid);
    return at < count && entries[at]->pid == pid ? entries[at] : NULL;
}

/* ---- libraries of one process ---- */

static void sweep_event(const struct ltn_lib *lib, void *arg)
{
    emit(arg, LTN_SCAN_LIB_GONE, NULL, lib);
}

static void drop_lib(struct round *r, struct entry *e, size_t at)
{
    struct ltn_lib *lib = e->libs[at];
    (void)ltn_libs_unmap(r->s->libs, lib, e->pid);
    e->lib_count--;
    e->libs[at] = e->libs[e->lib_count];
    emit(r, LTN_SCAN_LIB_UNMAPPED, e->proc, lib);
}

static void forget_process(struct round *r, struct entry *e)
{
    while (e->lib_count > 0) {
        drop_lib(r, e, e->lib_count - 1u);
    }
    if (e->proc != NULL) {
        emit(r, LTN_SCAN_PROC_GONE, e->proc, NULL);
    }
    entry_free(e);
}

static size_t index_of_line(const struct entry *e, const struct ltn_map_line *line)
{
    size_t i = 0;
    while (i < e->lib_count && (e->libs[i]->ino != line->ino ||
                                e->libs[i]->dev != makedev(line->dev_major, line->dev_minor))) {
        i++;
    }
    return i;
}

/* Puts the file on the process's list; reports it when it is new. Returns its index, or
 * LIBS_A_PROCESS when there is no place. */
static size_t note_lib(struct round *r, struct entry *e, const struct ltn_map_line *line,
                       enum ltn_lib_kind kind)
{
    struct ltn_lib *lib;
    bool new_file;
    bool new_user;
    if (e->libs == NULL) {
        e->libs = calloc(LIBS_A_PROCESS, sizeof(struct ltn_lib *));
        if (e->libs == NULL) {
            r->s->stats.no_memory_total++;
            return LIBS_A_PROCESS;
        }
    }
    size_t at = index_of_line(e, line);
    if (at >= LIBS_A_PROCESS) {
        r->s->stats.libs_refused_total++;
        return LIBS_A_PROCESS;
    }
    int rc = ltn_libs_map(r->s->libs, e->pid, line, kind, &lib, &new_file, &new_user);
    if (rc == -ENOMEM) {
        r->s->stats.no_memory_total++;
    } else if (rc < 0) {
        r->s->stats.libs_refused_total++;
    }
    if (rc < 0 || lib == NULL) {
        return LIBS_A_PROCESS;
    }
    if (at < e->lib_count) {
        return at;
    }
    e->libs[at] = lib;
    e->lib_count++;
    if (new_file) {
        emit(r, LTN_SCAN_LIB_NEW, NULL, lib);
    }
    emit(r, LTN_SCAN_LIB_MAPPED, e->proc, lib);
    return at;
}

/* Libraries by name, in one walk. Sets a bit in *seen for each, *ret_cuda when the driver's library
 * (or a file the user named) is among them. */
static void note_named(struct round *r, struct entry *e, uint32_t *seen, bool *ret_cuda)
{
    size_t pos = 0;
    struct ltn_map_line line;
    uint64_t last_ino = 0;
    while (ltn_maps_next(r->s->maps.data, r->s->maps.len, &pos, &line)) {
        if (line.ino == 0 || line.ino == last_ino || line.path_len == 0) {
            continue;
        }
        last_ino = line.ino;
        enum ltn_lib_kind kind = ltn_lib_kind_of_path(line.path, line.path_len);
        if (kind == LTN_LIB_NONE) {
            continue;
        }
        size_t at = note_lib(r, e, &line, kind);
        if (at < LIBS_A_PROCESS) {
            *seen |= 1u << at;
            *ret_cuda |= kind == LTN_LIB_CUDA;
        }
    }
}

static bool is_given(const struct ltn_scanner *s, const struct ltn_map_line *line)
{
    size_t pos = 0;
    const struct ltn_lib *lib;
    while ((lib = ltn_libs_next(s->libs, &pos)) != NULL) {
        if (lib->given && lib->ino == line->ino &&
            lib->dev == makedev(line->dev_major, line->dev_minor)) {
            return true;
        }
    }
    return false;
}

/* Known carriers in processes that use the driver, and whatever the user named. */
static void note_embedding(struct round *r, struct entry *e, uint32_t *seen, bool cuda,
                           bool any_given)
{
    size_t pos = 0;
    struct ltn_map_line line;
    uint64_t last_ino = 0;
    while (ltn_maps_next(r->s->maps.data, r->s->maps.len, &pos, &line)) {
        if (line.ino == 0 || line.ino == last_ino || line.path_len == 0) {
            continue;
        }
        last_ino = line.ino;
        bool look = (cuda && ltn_lib_may_embed(line.path, line.path_len)) ||
                    (any_given && is_given(r->s, &line));
        if (!look || ltn_lib_kind_of_path(line.path, line.path_len) != LTN_LIB_NONE) {
            continue;
        }
        size_t at = note_lib(r, e, &line, LTN_LIB_EMBEDDED);
        if (at < LIBS_A_PROCESS) {
            *seen |= 1u << at;
        }
    }
}

static bool stat_exe(pid_t pid, struct stat *ret)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    return stat(path, ret) == 0 && S_ISREG(ret->st_mode);
}

/* The program itself may carry a runtime. It is looked into before it opens the driver, so that
 * its first call is not missed; once for each file. */
static void note_program(struct round *r, struct entry *e, uint32_t *seen)
{
    struct stat exe;
    if (!stat_exe(e->pid, &exe) || exe.st_ino == e->plain_exe_ino) {
        return;
    }
    e->plain_exe_ino = 0;
    size_t pos = 0;
    struct ltn_map_line line;
    while (ltn_maps_next(r->s->maps.data, r->s->maps.len, &pos, &line)) {
        if (line.ino != exe.st_ino || line.path_len == 0) {
            continue;
        }
        size_t at = note_lib(r, e, &line, LTN_LIB_EMBEDDED);
        if (at < LIBS_A_PROCESS) {
            *seen |= 1u << at;
        } else if (ltn_libs_is_plain(r->s->libs, &exe)) {
            e->plain_exe_ino = exe.st_ino;
        }
        return;
    }
}

static bool has_given(const struct ltn_scanner *s)
{
    size_t pos = 0;
    const struct ltn_lib *lib;
    while ((lib = ltn_libs_next(s->libs, &pos)) != NULL) {
        if (lib->given) {
            return true;
        }
    }
    return false;
}

/* Reads the process's identity again: its program may be another one, its rights or cgroup too. The
 * same program at another address was started anew. */
static void refresh_identity(struct round *r, struct entry *e, bool moved)
{
    struct ltn_proc now;
    if (ltn_proc_read(e->pid, &now) < 0 || now.start_ticks != e->start_ticks) {
        return;
    }
    bool exec = moved || strcmp(now.exe, e->proc->exe) != 0;
    *e->proc = now;
    if (exec) {
        emit(r, LTN_SCAN_PROC_EXEC, e->proc, NULL);
    }
}

/* Compares the lowest mapping with that of the last look. */
static void notice_exec(struct round *r, struct entry *e, bool first_look)
{
    size_t pos = 0;
    struct ltn_map_line line = {0};
    if (!ltn_maps_next(r->s->maps.data, r->s->maps.len, &pos, &line)) {
        return;
    }
    bool changed = line.start != e->image_start || line.ino != e->image_ino;
    bool moved = changed && line.ino != 0 && line.ino == e->image_ino;
    e->image_start = line.start;
    e->image_ino = line.ino;
    if (changed) {
        e->plain_exe_ino = 0;
    }
    if (changed && !first_look) {
        refresh_identity(r, e, moved);
    }
}

static int read_maps(struct ltn_scanner *s, pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    ltn_buf_reset(&s->maps);
    int rc = ltn_file_read(path, &s->maps);
    s->stats.maps_read_total++;
    s->stats.maps_bytes_total += s->maps.len;
    return rc;
}

static void check_maps(struct round *r, struct entry *e)
{
    struct ltn_scanner *s = r->s;
    int rc = read_maps(s, e->pid);
    bool cut = rc == LTN_ERR_TOO_LARGE;
    if (rc == -ESRCH || rc == -ENOENT) {
        return; /* gone: the next listing says so */
    }
    if (rc < 0 && !cut) {
        s->stats.maps_denied_total += e->maps_denied ? 0 : 1;
        e->maps_denied = true;
        return;
    }
    s->stats.maps_cut_total += cut ? 1 : 0;
    e->maps_denied = false;
    notice_exec(r, e, e->last_maps_ns == 0);
    e->last_maps_ns = r->now_ns;
    uint32_t seen = 0;
    bool cuda = false;
    uint8_t before = e->lib_count;
    note_named(r, e, &seen, &cuda);
    note_program(r, e, &seen);
    bool any_given = has_given(s);
    if (cuda || any_given) {
        note_embedding(r, e, &seen, cuda, any_given);
    }
    bool changed = e->lib_count != before;
    for (size_t i = e->lib_count; i > 0 && !cut; i--) {
        if ((seen & (1u << (i - 1))) == 0) {
            drop_lib(r, e, i - 1);
            changed = true;
        }
    }
    if (changed) {
        e->interval_s = FIRST_INTERVAL_S;
    }
}

/* ---- processes ---- */

/* Pages of the address space, 0 when there is none (zombie) or it cannot be read. */
static uint64_t read_pages(pid_t pid)
{
    char path[64];
    char text[128];
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    if (ltn_file_read_head(path, text, sizeof(text)) < 0) {
        return 0;
    }
    uint64_t pages = 0;
    for (const char *p = text; *p >= '0' && *p <= '9' && pages < UINT64_MAX / 16; p++) {
        pages = pages * 10 + (uint64_t)(*p - '0');
    }
    return pages;
}

/* Takes the process in when the scope says so. */
static void judge(struct round *r, struct entry *e)
{
    struct ltn_scanner *s = r->s;
    if (s->scope.pid_count > 0 && !e->by_pid) {
        return;
    }
    struct ltn_proc proc;
    uid_t uid;
    if (s->scope.by_uid && (ltn_proc_read_uid(e->pid, &uid) < 0 || uid != s->scope.uid)) {
        return; /* most are turned away by this one file */
    }
    if (ltn_proc_read(e->pid, &proc) < 0 || proc.start_ticks != e->start_ticks ||
        !ltn_scope_matches(&s->scope, &proc, e->by_pid)) {
        return;
    }
    e->proc = malloc(sizeof(proc));
    if (e->proc == NULL) {
        s->stats.no_memory_total++;
        return;
    }
    *e->proc = proc;
    emit(r, LTN_SCAN_PROC_NEW, e->proc, NULL);
}

static void check(struct round *r, struct entry *e)
{
    bool due = e->poked || r->s->look_at_all || r->now_ns >= e->next_check_ns;
    if (e->kernel_thread || e->pid == r->s->self || !due) {
        return;
    }
    bool first = e->next_check_ns == 0;
    bool poked = e->poked;
    e->poked = false;
    if (e->proc == NULL) {
        judge(r, e);
    }
    if (e->proc != NULL) {
        uint64_t pages = read_pages(e->pid);
        uint64_t limit_ns = e->lib_count > 0 ? MAPS_CUDA_NS : MAPS_OTHER_NS;
        bool old = e->last_maps_ns == 0 || r->now_ns - e->last_maps_ns >= limit_ns;
        if (pages != e->pages || poked || old) {
            e->pages = pages;
            check_maps(r, e);
        }
    }
    /* A little less than the step between scans, so that jitter does not cost a whole scan. */
    e->next_check_ns = r->now_ns + e->interval_s * LTN_NS_PER_S - LTN_NS_PER_S / 4;
    unsigned last = e->proc != NULL ? LAST_INTERVAL_S : OUTSIDER_INTERVAL_S;
    unsigned next = e->interval_s * 2u;
    if (!first && e->interval_s >= last) {
        e->interval_s = (uint8_t)last;
    } else if (!first && next > last) {
        /* The first long wait differs by process, so that not all come due in the same scan. */
        e->interval_s = (uint8_t)last;
        e->next_check_ns += (uint64_t)e->pid % last * LTN_NS_PER_S;
    } else if (!first) {
        e->interval_s = (uint8_t)next;
    }
}

/* Is it on the pid list, or a descendant of such a process? */
static bool belongs_by_pid(const struct ltn_scanner *s, struct entry *const *fresh,
                           size_t fresh_count, const struct ltn_proc *proc)
{
    if (s->scope.pid_count == 0) {
        return false;
    }
    for (size_t i = 0; i < s->scope.pid_count; i++) {
        if (s->scope.pids[i] == proc->pid) {
            return true;
        }
    }
    const struct entry *parent = find_entry(fresh, fresh_count, proc->ppid);
    if (parent == NULL) {
        return ltn_scope_has_ancestor(&s->scope, proc->ppid);
    }
    return parent->by_pid;
}

static struct entry *new_entry(struct round *r, const struct listed *l, struct entry *const *fresh,
                               size_t fresh_count)
{
    struct ltn_scanner *s = r->s;
    struct ltn_proc proc;
    if (fresh_count >= MAX_PROCS) {
        s->stats.procs_refused_total++;
        return NULL;
    }
    if (ltn_proc_read_stat(l->pid, &proc) < 0) {
        return NULL; /* gone already, or not to be seen (hidepid) */
    }
    struct entry *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        s->stats.no_memory_total++;
        return NULL;
    }
    e->pid = l->pid;
    e->ppid = proc.ppid;
    e->dir_ino = l->ino;
    e->kernel_thread = proc.kernel_thread;
    e->start_ticks = proc.start_ticks;
    e->interval_s = FIRST_INTERVAL_S;
    e->by_pid = belongs_by_pid(s, fresh, fresh_count, &proc);
    return e;
}

/* The directory's inode changed: another process under this pid, or only the kernel's cache was
 * emptied. */
static bool same_process(struct entry *e, const struct listed *l)
{
    struct ltn_proc proc;
    if (e->dir_ino == l->ino) {
        return true;
    }
    if (ltn_proc_read_stat(e->pid, &proc) < 0 || proc.start_ticks != e->start_ticks) {
        return false;
    }
    e->dir_ino = l->ino;
    return true;
}

static int by_pid_order(const void *a, const void *b)
{
    const struct listed *x = a;
    const struct listed *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool pid_of_name(const char *name, pid_t *ret)
{
    uint64_t v;
    if (name[0] < '1' || name[0] > '9' || !ltn_parse_u64(name, &v) || v > INT_MAX) {
        return false;
    }
    *ret = (pid_t)v;
    return true;
}

/* All processes, ascending. The caller frees *ret. */
static int list_processes(struct listed **ret, size_t *ret_count)
{
    DIR *dir = opendir("/proc");
    if (dir == NULL) {
        return -errno;
    }
    struct listed *all = NULL;
    size_t count = 0;
    size_t size = 0;
    int rc = 0;
    struct dirent *d;
    bool sorted = true;
    while ((d = readdir(dir)) != NULL) {
        struct listed l = {.ino = d->d_ino};
        if (!pid_of_name(d->d_name, &l.pid)) {
            continue;
        }
        if (count == size) {
            size_t more = size == 0 ? 512 : size * 2;
            struct listed *grown = realloc(all, more * sizeof(*all));
            if (grown == NULL) {
                rc = -ENOMEM;
                break;
            }
            all = grown;
            size = more;
        }
        sorted = sorted && (count == 0 || all[count - 1].pid < l.pid);
        all[count++] = l;
    }
    (void)closedir(dir);
    if (rc < 0) {
        free(all);
        return rc;
    }
    if (!sorted) {
        qsort(all, count, sizeof(*all), by_pid_order);
    }
    *ret = all;
    *ret_count = count;
    return 0;
}

/* Makes the entries match the listing: both ascend by pid. */
static int merge(struct round *r, const struct listed *all, size_t all_count)
{
    struct ltn_scanner *s = r->s;
    struct entry **fresh = calloc(all_count == 0 ? 1 : all_count, sizeof(struct entry *));
    if (fresh == NULL) {
        s->stats.no_memory_total++;
        return -ENOMEM;
    }
    size_t n = 0;
    size_t old = 0;
    for (size_t i = 0; i < all_count; i++) {
        while (old < s->count && s->entries[old]->pid < all[i].pid) {
            forget_process(r, s->entries[old++]);
        }
        struct entry *e = NULL;
        if (old < s->count && s->entries[old]->pid == all[i].pid) {
            e = s->entries[old++];
            if (!same_process(e, &all[i])) {
                forget_process(r, e);
                e = NULL;
            }
        }
        if (e == NULL) {
            e = new_entry(r, &all[i], fresh, n);
        }
        if (e != NULL) {
            fresh[n++] = e;
        }
    }
    while (old < s->count) {
        forget_process(r, s->entries[old++]);
    }
    free(s->entries);
    s->entries = fresh;
    s->count = n;
    return 0;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * LTN_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void count_up(struct ltn_scanner *s, uint64_t wall_from, uint64_t cpu_from)
{
    s->stats.scans_total++;
    s->stats.procs_now = s->count;
    s->stats.procs_in_scope = 0;
    s->stats.procs_with_cuda = 0;
    s->stats.procs_hidden = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->stats.procs_in_scope += s->entries[i]->proc != NULL ? 1 : 0;
        s->stats.procs_with_cuda += s->entries[i]->lib_count > 0 ? 1 : 0;
        s->stats.procs_hidden += s->entries[i]->maps_denied ? 1 : 0;
    }
    s->stats.last_scan_ns = ltn_now_mono_ns() - wall_from;
    s->stats.last_scan_cpu_ns = thread_cpu_ns() - cpu_from;
}

int ltn_scanner_scan(struct ltn_scanner *s, uint64_t now_mono_ns, ltn_scan_fn fn, void *arg)
{
    uint64_t wall_from = ltn_now_mono_ns();
    uint64_t cpu_from = thread_cpu_ns();
    struct round r = {.s = s, .now_ns = now_mono_ns, .fn = fn, .arg = arg};
    struct listed *all = NULL;
    size_t all_count = 0;
    int rc = list_processes(&all, &all_count);
    if (rc < 0) {
        return rc;
    }
    rc = merge(&r, all, all_count);
    free(all);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < s->count; i++) {
        check(&r, s->entries[i]);
    }
    while (ltn_libs_sweep(s->libs, sweep_event, &r)) {
    }
    count_up(s, wall_from, cpu_from);
    return 0;
}

/* The entry of this process; one of an earlier process under its pid is forgotten. NULL when it is
 * gone, or when memory or a ceiling refuses it. */
static struct entry *entry_of(struct round *r, const struct listed *l)
{
    struct ltn_scanner *s = r->s;
    size_t at = place_of(s->entries, s->count, l->pid);
    if (at < s->count && s->entries[at]->pid == l->pid) {
        if (same_process(s->entries[at], l)) {
            return s->entries[at];
        }
        forget_process(r, s->entries[at]);
        s->count--;
        memmove(&s->entries[at], &s->entries[at + 1], (s->count - at) * sizeof(struct entry *));
    }
    struct entry *e = new_entry(r, l, s->entries, s->count);
    struct entry **grown =
        e == NULL ? NULL : realloc(s->entries, (s->count + 1) * sizeof(struct entry *));
    if (grown == NULL) {
        if (e != NULL) {
            s->stats.no_memory_total++;
            entry_free(e);
        }
        return NULL;
    }
    memmove(&grown[at + 1], &grown[at], (s->count - at) * sizeof(struct entry *));
    grown[at] = e;
    s->entries = grown;
    s->count++;
    return e;
}

void ltn_scanner_look_at_all(struct ltn_scanner *s, bool on)
{
    s->look_at_all = on;
}

void ltn_scanner_look(struct ltn_scanner *s, pid_t pid, uint64_t now_mono_ns, ltn_scan_fn fn,
                      void *arg)
{
    struct round r = {.s = s, .now_ns = now_mono_ns, .fn = fn, .arg = arg};
    struct listed l = {.pid = pid};
    struct stat st;
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (stat(path, &st) < 0) {
        return; /* the next scan tells that it is gone */
    }
    l.ino = st.st_ino;
    struct entry *e = entry_of(&r, &l);
    if (e != NULL) {
        e->poked = true;
        e->interval_s = FIRST_INTERVAL_S;
        check(&r, e);
    }
}

bool ltn_scanner_program_is_plain(const struct ltn_scanner *s, pid_t pid)
{
    struct stat exe;
    return stat_exe(pid, &exe) && ltn_libs_is_plain(s->libs, &exe);
}

void ltn_scanner_poke(struct ltn_scanner *s, pid_t pid)
{
    struct entry *e = find_entry(s->entries, s->count, pid);
    if (e != NULL) {
        e->poked = true;
        e->interval_s = FIRST_INTERVAL_S;
    }
}

const struct ltn_proc *ltn_scanner_proc(const struct ltn_scanner *s, pid_t pid)
{
    const struct entry *e = find_entry(s->entries, s->count, pid);
    return e == NULL ? NULL : e->proc;
}

const struct ltn_proc *ltn_scanner_next(const struct ltn_scanner *s, size_t *pos)
{
    while (*pos < s->count) {
        const struct ltn_proc *proc = s->entries[(*pos)++]->proc;
        if (proc != NULL) {
            return proc;
        }
    }
    return NULL;
}

bool ltn_scanner_has_cuda(const struct ltn_scanner *s, pid_t pid)
{
    const struct entry *e = find_entry(s->entries, s->count, pid);
    return e != NULL && e->lib_count > 0;
}

struct ltn_libs *ltn_scanner_libs(struct ltn_scanner *s)
{
    return s->libs;
}

void ltn_scanner_stats(const struct ltn_scanner *s, struct ltn_scan_stats *ret)
{
    *ret = s->stats;
}
