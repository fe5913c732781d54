/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/silence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/map.h"
#include "base/text.h"
#include "discover/runs.h"

#define WINDOWS_QUIET  3  /* without a call, before a process is looked at */
#define CPU_MIN_PCT    5  /* of one CPU: less is no use worth an alarm */
#define LIBS_MAX       32 /* looked for in one process */
#define PROCS_MAX      8192
#define LOOK_AGAIN_MIN 6 /* windows, then twice as many each time */
#define LOOK_AGAIN_MAX 60

struct watched {
    pid_t pid;
    uint64_t start_ticks;
    uint64_t calls;
    uint64_t cpu_ticks;
    uint64_t quiet_windows;
    uint64_t look_at; /* quiet_windows from which it is looked at */
    uint64_t look_step;
    uint64_t seen_in; /* number of the last window that found it */
    bool busy;        /* used the CPU in the last window */
    bool silent;
    unsigned cpu_pct;
    char comm[LTN_PROC_COMM_BYTES];
    char path[LTN_SILENCE_PATH_BYTES];
};

struct ltn_silence {
    struct ltn_scanner *scanner;
    const struct ltn_probes *probes;
    struct ltn_aggregate *aggregate;
    struct ltn_map by_pid; /* struct watched * */
    uint64_t windows;      /* looked at so far */
    uint64_t window_ns;    /* when the last one was (CLOCK_MONOTONIC) */
    struct ltn_runs *runs; /* a look in progress */
    pid_t runs_pid;
    uint64_t runs_since_ns;
    struct ltn_silence_stats stats;
};

struct ltn_silence *ltn_silence_new(struct ltn_scanner *scanner, const struct ltn_probes *probes,
                                    struct ltn_aggregate *aggregate)
{
    struct ltn_silence *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        s->scanner = scanner;
        s->probes = probes;
        s->aggregate = aggregate;
        s->window_ns = ltn_now_mono_ns();
        ltn_map_init(&s->by_pid, PROCS_MAX);
    }
    return s;
}

void ltn_silence_free(struct ltn_silence *s)
{
    if (s == NULL) {
        return;
    }
    ltn_runs_free(s->runs);
    ltn_map_done(&s->by_pid, free);
    free(s);
}

/* CPU time of all threads, in clock ticks. */
static bool cpu_ticks_of(pid_t pid, uint64_t *ret)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (ltn_file_read_head(path, text, sizeof(text)) < 0) {
        return false;
    }
    const char *p = strrchr(text, ')'); /* behind it comes field 3 */
    uint64_t sum = 0;
    for (unsigned field = 2; p != NULL && field < 15; field++) {
        p = strchr(p, ' ');
        p = p == NULL ? NULL : p + 1;
        if (p != NULL && field + 1 >= 14) { /* 14 and 15: in user and in kernel mode */
            char number[24] = {0};
            uint64_t v;
            memcpy(number, p, strnlen(p, sizeof(number) - 1));
            number[strspn(number, "0123456789")] = '\0';
            if (!ltn_parse_u64(number, &v)) {
                return false;
            }
            sum += v;
        }
    }
    *ret = sum;
    return p != NULL;
}

/* Files with probes that the process maps. */
static size_t libs_of(const struct ltn_silence *s, pid_t pid, const struct ltn_lib *out[LIBS_MAX])
{
    struct ltn_libs *all = ltn_scanner_libs(s->scanner);
    const struct ltn_lib *lib;
    size_t pos = 0;
    size_t n = 0;
    while (n < LIBS_MAX && (lib = ltn_libs_next(all, &pos)) != NULL) {
        if (ltn_lib_has_user(lib, pid) && ltn_probes_has(s->probes, lib->id)) {
            out[n++] = lib;
        }
    }
    return n;
}

static struct watched *watched_of(struct ltn_silence *s, const struct ltn_proc *proc)
{
    struct watched *w = ltn_map_get_u64(&s->by_pid, (uint64_t)proc->pid);
    if (w == NULL) {
        w = calloc(1, sizeof(*w));
        if (w == NULL || ltn_map_put_u64(&s->by_pid, (uint64_t)proc->pid, w) != 0) {
            free(w);
            return NULL;
        }
    }
    if (w->start_ticks != proc->start_ticks) {
        *w = (struct watched){.pid = proc->pid,
                              .start_ticks = proc->start_ticks,
                              .look_at = WINDOWS_QUIET,
                              .look_step = LOOK_AGAIN_MIN};
        (void)cpu_ticks_of(proc->pid, &w->cpu_ticks);
    }
    memcpy(w->comm, proc->comm, sizeof(w->comm));
    return w;
}

/* A window ended: did the process make calls, and did it use the CPU? */
static void judge(struct ltn_silence *s, struct watched *w, uint64_t window_ns)
{
    struct ltn_activity now = {0};
    uint64_t ticks = w->cpu_ticks;
    w->seen_in = s->windows;
    if (cpu_ticks_of(w->pid, &ticks)) {
        uint64_t used_ns = (ticks - w->cpu_ticks) * (LTN_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
        w->busy = used_ns * 100 >= window_ns * CPU_MIN_PCT;
        w->cpu_ticks = ticks;
    }
    w->silent = w->silent && w->busy;
    bool known = ltn_aggregate_activity(s->aggregate, (uint32_t)w->pid, &now);
    if (known && (now.in_call || now.calls != w->calls)) {
        w->calls = now.calls;
        w->quiet_windows = 0;
        w->look_at = WINDOWS_QUIET;
        w->look_step = LOOK_AGAIN_MIN;
        w->silent = false;
        return;
    }
    w->quiet_windows++;
}

/* Processes that are gone, or that map no such file any more. */
static void forget_old(struct ltn_silence *s)
{
    size_t pos = 0;
    struct watched *w;
    while ((w = ltn_map_next(&s->by_pid, &pos)) != NULL) {
        if (w->seen_in != s->windows) {
            free(ltn_map_del_u64(&s->by_pid, (uint64_t)w->pid));
            pos = 0; /* the walk does not survive a removal */
        }
    }
}

static void on_window(struct ltn_silence *s, uint64_t now_ns)
{
    const struct ltn_lib *libs[LIBS_MAX];
    const struct ltn_proc *proc;
    uint64_t window_ns = now_ns - s->window_ns;
    size_t pos = 0;
    s->windows++;
    while ((proc = ltn_scanner_next(s->scanner, &pos)) != NULL) {
        if (!ltn_scanner_has_cuda(s->scanner, proc->pid) || libs_of(s, proc->pid, libs) == 0) {
            continue;
        }
        struct watched *w = watched_of(s, proc);
        if (w != NULL) {
            judge(s, w, window_ns);
        }
    }
    forget_old(s);
    s->window_ns = now_ns;
}

static void begin_look(struct ltn_silence *s, uint64_t now_ns)
{
    size_t pos = 0;
    const struct watched *w;
    const struct watched *next = NULL;
    while ((w = ltn_map_next(&s->by_pid, &pos)) != NULL) {
        bool due = w->busy && w->quiet_windows >= w->look_at;
        if (due &&
            (next == NULL || w->quiet_windows - w->look_at > next->quiet_windows - next->look_at)) {
            next = w;
        }
    }
    if (next == NULL) {
        return;
    }
    s->runs_pid = next->pid;
    s->runs_since_ns = now_ns;
    s->stats.looks_total++;
    if (ltn_runs_new(next->pid, &s->runs) < 0) {
        s->runs = NULL; /* gone, or not permitted: then nothing can be said */
        struct watched *not_now = ltn_map_get_u64(&s->by_pid, (uint64_t)next->pid);
        not_now->look_at = not_now->quiet_windows + LOOK_AGAIN_MAX;
    }
}

static void end_look(struct ltn_silence *s, uint64_t now_ns)
{
    const struct ltn_lib *libs[LIBS_MAX];
    struct ltn_runs_result res = {0};
    struct watched *w = ltn_map_get_u64(&s->by_pid, (uint64_t)s->runs_pid);
    size_t n = w == NULL ? 0 : libs_of(s, w->pid, libs);
    int rc = n == 0 ? -1 : ltn_runs_end(s->runs, libs, n, &res);
    ltn_runs_free(s->runs);
    s->runs = NULL;
    if (rc < 0 || w->quiet_windows == 0) {
        return; /* gone, or a call was seen meanwhile */
    }
    uint64_t looked_ns = now_ns - s->runs_since_ns;
    uint64_t inside_ns = (uint64_t)res.inside * (LTN_NS_PER_S / LTN_RUNS_HZ);
    w->look_at = w->quiet_windows + w->look_step;
    w->look_step = w->look_step * 2 > LOOK_AGAIN_MAX ? LOOK_AGAIN_MAX : w->look_step * 2;
    w->cpu_pct = looked_ns == 0 ? 0 : (unsigned)(inside_ns * 100 / looked_ns);
    bool silent = w->cpu_pct >= CPU_MIN_PCT;
    s->stats.silent_total += silent && !w->silent;
    w->silent = silent;
    (void)ltn_copy_str(w->path, sizeof(w->path),
                       strlen(libs[0]->path) < sizeof(w->path) ? libs[0]->path : libs[0]->soname);
}

static void count_up(struct ltn_silence *s)
{
    size_t pos = 0;
    const struct watched *w;
    s->stats.silent_now = 0;
    while ((w = ltn_map_next(&s->by_pid, &pos)) != NULL) {
        if (!w->silent) {
            continue;
        }
        if (s->stats.silent_now++ == 0) {
            struct ltn_silent *f = &s->stats.first;
            *f = (struct ltn_silent){
                .pid = w->pid, .cpu_pct = w->cpu_pct, .quiet_windows = w->quiet_windows};
            memcpy(f->comm, w->comm, sizeof(f->comm));
            memcpy(f->path, w->path, sizeof(f->path));
        }
    }
}

void ltn_silence_tick(struct ltn_silence *s)
{
    uint64_t now_ns = ltn_now_mono_ns();
    uint64_t windows = ltn_aggregate_stats(s->aggregate).windows_total;
    if (s->runs != NULL && now_ns - s->runs_since_ns >= LTN_NS_PER_S * 9 / 10) {
        end_look(s, now_ns);
    }
    if (windows > s->windows) {
        s->windows = windows - 1; /* one that was missed tells nothing of its own */
        on_window(s, now_ns);
    }
    if (s->runs == NULL) {
        begin_look(s, now_ns);
    }
    count_up(s);
}

void ltn_silence_stats(const struct ltn_silence *s, struct ltn_silence_stats *ret)
{
    *ret = s->stats;
}
