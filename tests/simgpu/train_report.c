// SPDX-License-Identifier: Apache-2.0
// What a run reports: its own timing, and the exact number of calls per export.
#include "train.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void schedstat_add(const char *path, uint64_t *run, uint64_t *wait)
{
    char text[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    char *end = NULL;
    *run += strtoull(text, &end, 10);
    *wait += strtoull(end, NULL, 10);
}

uint64_t train_sched_wait_ns(bool all_tasks, uint64_t *ret_run_ns)
{
    uint64_t run = 0, wait = 0;
    if (!all_tasks) {
        schedstat_add("/proc/self/schedstat", &run, &wait);
    } else {
        DIR *dir = opendir("/proc/self/task");
        const struct dirent *entry;
        while (dir != NULL && (entry = readdir(dir)) != NULL) {
            char path[320];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", entry->d_name);
            schedstat_add(path, &run, &wait);
        }
        if (dir != NULL)
            closedir(dir);
    }
    if (ret_run_ns != NULL)
        *ret_run_ns = run;
    return wait;
}

typedef const char *(*tally_fn)(unsigned, uint64_t *);

static void tally_library(FILE *out, const char *file, const char *reader, const char **comma)
{
    void *lib = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = lib == NULL ? NULL : dlsym(lib, reader);
    tally_fn fn;
    if (symbol == NULL)
        return;
    memcpy(&fn, &symbol, sizeof(fn));
    uint64_t value = 0;
    const char *name;
    for (unsigned i = 0; (name = fn(i, &value)) != NULL; i++) {
        if (value == 0)
            continue;
        fprintf(out, "%s\n  \"%s\": %llu", *comma, name, (unsigned long long)value);
        *comma = ",";
    }
    dlclose(lib);
}

int train_write_tally(const char *path)
{
    const char *comma = "";
    FILE *out = fopen(path, "we");
    if (out == NULL)
        return 1;
    fprintf(out, "{");
    tally_library(out, "libcudart.so.12", "simTallyCudart", &comma);
    tally_library(out, "libcuda.so.1", "simTallyCuda", &comma);
    tally_library(out, "libnccl.so.2", "simTallyNccl", &comma);
    fprintf(out, "\n}\n");
    return fclose(out) == 0 ? 0 : 1;
}

int train_write_report(struct train *t)
{
    FILE *out = fopen(t->opt.report, "we");
    if (out == NULL)
        return 1;
    double elapsed_ns = t->end_ns > t->begin_ns ? (double)(t->end_ns - t->begin_ns) : 1;
    double steps = t->steps_done > 0 ? (double)t->steps_done : 1;
    uint64_t run_main = 0, run_all = 0;
    uint64_t wait_main = train_sched_wait_ns(false, &run_main),
             wait_all = train_sched_wait_ns(true, &run_all);
    fprintf(out,
            "{\"rank\":%d,\"pid\":%d,\"mode\":\"%s\",\"steps\":%llu,\"mean_step_ms\":%.3f,\"failed_"
            "calls\":%llu,"
            "\"checksum\":\"%016llx\",\"elapsed_ms\":%.3f,\"sync_ms\":%.3f,\"load_ms\":%.3f,"
            "\"cpu_ms\":%.3f,\"cpu_wait_share\":%.5f,\"cpu_wait_share_all\":%.5f",
            t->rank, getpid(), t->opt.mode, (unsigned long long)t->steps_done,
            elapsed_ns / 1e6 / steps, (unsigned long long)t->failed_calls,
            (unsigned long long)t->checksum, elapsed_ns / 1e6, (double)t->sync_ns / 1e6 / steps,
            (double)t->load_ns / 1e6 / steps, (double)run_all / 1e6, (double)wait_main / elapsed_ns,
            (double)wait_all / elapsed_ns);
    fprintf(out, "%s,\n\"windows\":[", t->extra);
    for (int i = 0; i < t->window_count; i++)
        fprintf(out, "%s\n{\"step_ms\":%.3f,\"self_ms\":%.3f,\"load_ms\":%.3f,\"sync_ms\":%.3f}",
                i ? "," : "", t->windows[i].step_ms, t->windows[i].self_ms, t->windows[i].load_ms,
                t->windows[i].sync_ms);
    fprintf(out, "]}\n");
    return fclose(out) == 0 ? 0 : 1;
}
