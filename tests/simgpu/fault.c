// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const g_names[SIM_FAULT_KINDS] = {"cpu", "dataloader", "gpu", "hang"};

int sim_fault_kind_of(const char *name)
{
    for (int i = 0; i < SIM_FAULT_KINDS; i++) {
        if (strcmp(name, g_names[i]) == 0)
            return i;
    }
    return -1;
}

const char *sim_fault_name(enum sim_fault_kind kind)
{
    return g_names[kind];
}

static int fault_set(struct sim_fault *f, const char *key, const char *value)
{
    if (strcmp(key, "rank") == 0)
        f->rank = (int)strtol(value, NULL, 10);
    else if (strcmp(key, "at") == 0)
        f->at_step = strtoull(value, NULL, 10);
    else if (strcmp(key, "until") == 0)
        f->until_step = strtoull(value, NULL, 10);
    else if (strcmp(key, "core") == 0)
        f->core = (int)strtol(value, NULL, 10);
    else if (strcmp(key, "threads") == 0)
        f->threads = (int)strtol(value, NULL, 10);
    else if (strcmp(key, "nice") == 0)
        f->nice = (int)strtol(value, NULL, 10);
    else if (strcmp(key, "ms") == 0)
        f->ms = strtod(value, NULL);
    else if (strcmp(key, "factor") == 0)
        f->factor = strtod(value, NULL);
    else if (strcmp(key, "comm") == 0)
        snprintf(f->comm, sizeof(f->comm), "%.15s", value);
    else
        return -EINVAL;
    return 0;
}

int sim_fault_parse(const char *text, struct sim_fault *ret_fault)
{
    char copy[256];
    struct sim_fault f = {
        .rank = -1, .core = 0, .comm = "logrotate", .nice = -5, .ms = 20, .factor = 1.4};
    f.until_step = UINT64_MAX;
    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return -EINVAL;
    char *rest = copy;
    char *part = strsep(&rest, ":");
    int kind = part == NULL ? -1 : sim_fault_kind_of(part);
    if (kind < 0)
        return -EINVAL;
    f.kind = (enum sim_fault_kind)kind;
    while ((part = strsep(&rest, ":")) != NULL) {
        char *value = strchr(part, '=');
        if (value == NULL)
            return -EINVAL;
        *value++ = '\0';
        if (fault_set(&f, part, value) != 0)
            return -EINVAL;
    }
    if (f.rank < 0 || f.rank >= SIM_MAX_RANKS)
        return -EINVAL;
    *ret_fault = f;
    return 0;
}

static void truth_line(struct sim_shm *shm, const char *dir, const struct sim_fault *f,
                       uint64_t start, uint64_t end, int pid)
{
    char path[512], line[640], tail[32] = "null";
    const struct sim_rank *r = &shm->ranks[f->rank];
    if (end != 0)
        snprintf(tail, sizeof(tail), "%llu", (unsigned long long)end);
    int n = snprintf(line, sizeof(line),
                     "{\"fault\":\"%s\",\"rank\":%d,\"rank_pid\":%d,\"node\":\"%s\",\"device\":%d,"
                     "\"core\":%d,\"comm\":\"%s\",\"pid\":%d,\"ms\":%.3f,\"factor\":%.3f,"
                     "\"start_unix_ns\":%llu,\"end_unix_ns\":%s}\n",
                     g_names[f->kind], f->rank, atomic_load(&r->pid), shm->nodes[r->node].name,
                     r->device, f->kind == SIM_FAULT_CPU ? f->core : -1,
                     f->kind == SIM_FAULT_CPU ? f->comm : "", pid,
                     f->kind == SIM_FAULT_DATALOADER ? f->ms : 0.0,
                     f->kind == SIM_FAULT_GPU ? f->factor : 0.0, (unsigned long long)start, tail);
    snprintf(path, sizeof(path), "%s/truth.jsonl", dir);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    if (write(fd, line, (size_t)n) != n)
        fprintf(stderr, "simgpu: truth line not written\n");
    close(fd);
}

static void *spin(void *unused)
{
    (void)unused;
    for (volatile unsigned long i = 0;; i++) {
    }
    return NULL;
}

// A sleeper that wakes up is preferred by the scheduler, so one spinner of equal weight hardly
// delays a rank that sleeps most of the time. So the hog weighs more, as a task and, where sessions
// are scheduled as groups, as a session.
static void hog_weight(int nice_value)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "%d", nice_value);
    if (setpriority(PRIO_PROCESS, 0, nice_value) != 0)
        return; // without the right to it the hog stays as heavy as the others
    int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, text, (size_t)n) != n)
            errno = 0; // no such grouping here
        close(fd);
    }
}

static void hog_run(const struct sim_fault *f)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)f->core, &cpus);
    setsid();
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        _exit(1);
    struct sched_param param = {0};
    sched_setscheduler(0, SCHED_OTHER, &param);
    prctl(PR_SET_NAME, f->comm);
    hog_weight(f->nice);
    for (int fd = 0; fd < 256; fd++)
        close(fd);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_IGN);
    int threads = f->threads > 0 && f->threads <= 16 ? f->threads : 1;
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin, NULL) != 0)
            break;
    }
    spin(NULL);
}

// Through a middle child, so that nobody has to wait for the hog.
static int hog_start(const struct sim_fault *f)
{
    int ends[2], pid = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    pid_t middle = fork();
    if (middle < 0)
        return -errno;
    if (middle == 0) {
        pid_t hog = fork();
        if (hog == 0)
            hog_run(f);
        pid = hog;
        _exit(write(ends[1], &pid, sizeof(pid)) == sizeof(pid) ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &pid, sizeof(pid)) != sizeof(pid))
        pid = -EIO;
    close(ends[0]);
    waitpid(middle, NULL, 0);
    return pid;
}

int sim_fault_start(struct sim_shm *shm, const char *dir, const struct sim_fault *f, int *ret_pid)
{
    struct sim_rank *r = &shm->ranks[f->rank];
    int pid = 0;
    if (atomic_load(&r->fault_since_unix_ns[f->kind]) != 0)
        return -EALREADY;
    uint64_t now = sim_unix_ns();
    switch (f->kind) {
    case SIM_FAULT_CPU:
        pid = hog_start(f);
        if (pid <= 0)
            return pid == 0 ? -EIO : pid;
        atomic_store(&r->hog_pid, pid);
        atomic_store(&r->hog_core, (uint32_t)f->core);
        break;
    case SIM_FAULT_DATALOADER:
        atomic_store(&r->loader_extra_ns, (uint64_t)(f->ms * 1e6));
        break;
    case SIM_FAULT_GPU:
        if (f->factor < 0.1 || f->factor > 100)
            return -EINVAL;
        sim_gpu_fault(shm, f->rank, (uint32_t)(f->factor * 1000 + 0.5));
        break;
    default:
        atomic_store(&r->hang, 1);
    }
    atomic_store(&r->fault_since_unix_ns[f->kind], now);
    truth_line(shm, dir, f, now, 0, pid);
    if (ret_pid != NULL)
        *ret_pid = pid;
    return 0;
}

int sim_fault_stop(struct sim_shm *shm, const char *dir, const struct sim_fault *f)
{
    struct sim_rank *r = &shm->ranks[f->rank];
    uint64_t since = atomic_load(&r->fault_since_unix_ns[f->kind]);
    struct sim_fault was = *f;
    int pid = 0;
    if (since == 0)
        return -ESRCH;
    switch (f->kind) {
    case SIM_FAULT_CPU:
        pid = atomic_exchange(&r->hog_pid, 0);
        was.core = (int)atomic_load(&r->hog_core);
        if (pid > 1)
            kill(pid, SIGTERM);
        break;
    case SIM_FAULT_DATALOADER:
        was.ms = (double)atomic_exchange(&r->loader_extra_ns, 0) / 1e6;
        break;
    case SIM_FAULT_GPU:
        was.factor = atomic_load(&r->gpu_permille) / 1000.0;
        sim_gpu_fault(shm, f->rank, 1000);
        break;
    default:
        atomic_store(&r->hang, 0);
    }
    atomic_store(&r->fault_since_unix_ns[f->kind], 0);
    truth_line(shm, dir, &was, since, sim_unix_ns(), pid);
    return 0;
}
