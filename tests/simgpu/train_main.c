// SPDX-License-Identifier: Apache-2.0
// simtrain: options, job set-up as torchrun leaves it, and the end of a run.
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static const char g_usage[] =
    "usage: simtrain [options]     one rank; RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT "
    "come from the environment\n"
    "  --preset quickstart  the tuning for eight ranks on two cores\n"
    "  --steps N | --seconds S\n"
    "  --step-cpu-ms F --kernels N --kernel-us F --buckets N --bucket-bytes B\n"
    "  --batch-bytes B --read-ms F --jitter F (0..1) --wait spin|block --seed N\n"
    "  --graph    each step is one launch of a graph, which is recorded at the start\n"
    "  --storm | --churn | --mode hog-victim|sleep|pagefault   single-process modes\n"
    "  --threads N --streams N --mode-ms F --pages N\n"
    "  --fault NAME:rank=R:at=S[:until=S][:core=C][:comm=X][:ms=F][:factor=F]   may be given "
    "often\n"
    "  --tally FILE --report FILE      a %r in FILE becomes the rank\n";

void train_check(struct train *t, int rc, const char *what)
{
    if (rc == 0)
        return;
    if (t->failed_calls++ == 0)
        fprintf(stderr, "simtrain: rank %d: %s failed: %d\n", t->rank, what, rc);
}

static void preset(struct train_options *o)
{
    o->step_cpu_ms = 4.4;
    o->kernels = 24;
    o->kernel_us = 2700;
    o->buckets = 4;
    o->bucket_bytes = 8u << 20;
    o->batch_bytes = 262144;
    o->read_ms = 24;
    o->jitter = 0.97;
    o->block = 1;
}

enum {
    OPT_PRESET = 256,
    OPT_STEPS,
    OPT_SECONDS,
    OPT_CPU,
    OPT_KERNELS,
    OPT_KERNEL_US,
    OPT_BUCKETS,
    OPT_BUCKET_BYTES,
    OPT_BATCH,
    OPT_READ,
    OPT_JITTER,
    OPT_WAIT,
    OPT_SEED,
    OPT_THREADS,
    OPT_STREAMS,
    OPT_GRAPH,
    OPT_STORM,
    OPT_CHURN,
    OPT_MODE,
    OPT_MODE_MS,
    OPT_PAGES,
    OPT_TALLY,
    OPT_REPORT,
    OPT_FAULT,
};

static const struct option g_options[] = {
    {"preset", 1, NULL, OPT_PRESET},
    {"steps", 1, NULL, OPT_STEPS},
    {"seconds", 1, NULL, OPT_SECONDS},
    {"step-cpu-ms", 1, NULL, OPT_CPU},
    {"kernels", 1, NULL, OPT_KERNELS},
    {"kernel-us", 1, NULL, OPT_KERNEL_US},
    {"buckets", 1, NULL, OPT_BUCKETS},
    {"bucket-bytes", 1, NULL, OPT_BUCKET_BYTES},
    {"batch-bytes", 1, NULL, OPT_BATCH},
    {"read-ms", 1, NULL, OPT_READ},
    {"jitter", 1, NULL, OPT_JITTER},
    {"wait", 1, NULL, OPT_WAIT},
    {"seed", 1, NULL, OPT_SEED},
    {"threads", 1, NULL, OPT_THREADS},
    {"streams", 1, NULL, OPT_STREAMS},
    {"graph", 0, NULL, OPT_GRAPH},
    {"storm", 0, NULL, OPT_STORM},
    {"churn", 0, NULL, OPT_CHURN},
    {"mode", 1, NULL, OPT_MODE},
    {"mode-ms", 1, NULL, OPT_MODE_MS},
    {"pages", 1, NULL, OPT_PAGES},
    {"tally", 1, NULL, OPT_TALLY},
    {"report", 1, NULL, OPT_REPORT},
    {"fault", 1, NULL, OPT_FAULT},
    {"help", 0, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int option_number(struct train_options *o, int c, const char *arg)
{
    char *end = NULL;
    double f = strtod(arg, &end);
    if (end == arg || *end != '\0' || f < 0)
        return -EINVAL;
    switch (c) {
    case OPT_STEPS:
        o->steps = (uint64_t)f;
        break;
    case OPT_SECONDS:
        o->seconds = f;
        break;
    case OPT_CPU:
        o->step_cpu_ms = f;
        break;
    case OPT_KERNELS:
        o->kernels = (int)f;
        break;
    case OPT_KERNEL_US:
        o->kernel_us = f;
        break;
    case OPT_BUCKETS:
        o->buckets = (int)f;
        break;
    case OPT_BUCKET_BYTES:
        o->bucket_bytes = (uint64_t)f;
        break;
    case OPT_BATCH:
        o->batch_bytes = ((uint64_t)f + 4095) & ~4095ull;
        break;
    case OPT_READ:
        o->read_ms = f;
        break;
    case OPT_JITTER:
        o->jitter = f;
        break;
    case OPT_SEED:
        o->seed = (uint64_t)f;
        break;
    case OPT_THREADS:
        o->threads = (int)f;
        break;
    case OPT_STREAMS:
        o->streams = (int)f;
        break;
    case OPT_MODE_MS:
        o->mode_ms = f;
        break;
    case OPT_PAGES:
        o->pages = (uint64_t)f;
        break;
    default:
        return -EINVAL;
    }
    return 0;
}

static int option_take(struct train_options *o, int c, const char *arg)
{
    switch (c) {
    case OPT_PRESET:
        if (strcmp(arg, "quickstart") != 0)
            return -EINVAL;
        preset(o);
        return 0;
    case OPT_WAIT:
        o->block = strcmp(arg, "block") == 0;
        return o->block || strcmp(arg, "spin") == 0 ? 0 : -EINVAL;
    case OPT_GRAPH:
        o->graph = 1;
        return 0;
    case OPT_STORM:
        o->mode = "storm";
        return 0;
    case OPT_CHURN:
        o->mode = "churn";
        return 0;
    case OPT_MODE:
        o->mode = arg;
        if (strcmp(arg, "sleep") == 0)
            o->block = 1;
        return 0;
    case OPT_TALLY:
        o->tally = arg;
        return 0;
    case OPT_REPORT:
        o->report = arg;
        return 0;
    case OPT_FAULT:
        if (o->fault_count == TRAIN_MAX_FAULTS)
            return -EINVAL;
        return sim_fault_parse(arg, &o->faults[o->fault_count++]);
    default:
        return option_number(o, c, arg);
    }
}

// Rank 0 writes the identity into a file that everybody can see; it is removed once all have
// joined.
static int exchange_id(struct train *t, ncclUniqueId *id)
{
    char path[512], temporary[530];
    const char *port = getenv("MASTER_PORT");
    snprintf(path, sizeof(path), "%s/id-%.16s", t->dir, port != NULL ? port : "29500");
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    if (t->rank == 0) {
        CHECK(t, ncclGetUniqueId(id));
        int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        ssize_t n = fd < 0 ? -1 : write(fd, id, sizeof(*id));
        if (fd >= 0)
            close(fd);
        return n == (ssize_t)sizeof(*id) && rename(temporary, path) == 0 ? 0 : -errno;
    }
    struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < 6000; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(*id));
        if (fd >= 0)
            close(fd);
        if (n == (ssize_t)sizeof(*id))
            return 0;
        nanosleep(&nap, NULL);
    }
    return -ETIMEDOUT;
}

static int job_join(struct train *t)
{
    char path[512];
    const char *port = getenv("MASTER_PORT");
    ncclUniqueId id;
    if (t->world <= 1)
        return 0;
    if (t->rank == 0)
        atomic_store(&t->shm->stop_step, 0);
    int rc = exchange_id(t, &id);
    if (rc != 0)
        return rc;
    CHECK(t, ncclCommInitRank(&t->comm, t->world, id, t->rank));
    snprintf(path, sizeof(path), "%s/id-%.16s", t->dir, port != NULL ? port : "29500");
    if (t->rank == 0)
        unlink(path);
    return t->failed_calls == 0 ? 0 : -EIO;
}

static char *with_rank(const char *text, int rank)
{
    const char *mark = text == NULL ? NULL : strstr(text, "%r");
    char *out = NULL;
    if (text == NULL)
        return NULL;
    int n = mark == NULL ? asprintf(&out, "%s", text)
                         : asprintf(&out, "%.*s%d%s", (int)(mark - text), text, rank, mark + 2);
    return n < 0 ? NULL : out;
}

static int run(struct train *t)
{
    bool training = strcmp(t->opt.mode, "train") == 0;
    struct train_loader *loader = NULL;
    if (training) {
        loader = train_loader_new(t);
        if (loader == NULL)
            return 1;
    }
    CHECK(t, cudaSetDevice(t->local_rank));
    CHECK(t, cudaSetDeviceFlags(t->opt.block ? cudaDeviceScheduleBlockingSync
                                             : cudaDeviceScheduleSpin));
    CHECK(t, cudaStreamCreateWithFlags(&t->stream, 1));
    int rc = t->failed_calls > 0 ? 1 : 0;
    if (rc == 0 && training) {
        rc = job_join(t) != 0 ? 1 : 0;
        if (rc == 0)
            rc = train_steps(t, loader);
    } else if (rc == 0) {
        rc = train_mode_single(t);
    }
    CHECK(t, cudaStreamDestroy(t->stream));
    if (t->comm != NULL)
        CHECK(t, ncclCommDestroy(t->comm));
    train_loader_free(loader);
    return rc;
}

int main(int argc, char **argv)
{
    static struct train train;
    struct train *t = &train;
    int c;
    t->opt = (struct train_options){.steps = 0,
                                    .step_cpu_ms = 1,
                                    .kernels = 24,
                                    .kernel_us = 200,
                                    .buckets = 2,
                                    .bucket_bytes = 1u << 20,
                                    .batch_bytes = 65536,
                                    .read_ms = 1,
                                    .jitter = 0.2,
                                    .seed = 1,
                                    .threads = 1,
                                    .streams = 1,
                                    .mode = "train",
                                    .pages = 4096,
                                    .mode_ms = 20};
    while ((c = getopt_long(argc, argv, "h", g_options, NULL)) != -1) {
        if (c == 'h' || c == '?' || option_take(&t->opt, c, optarg) != 0) {
            fputs(g_usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    if (t->opt.steps == 0 && t->opt.seconds <= 0 && strcmp(t->opt.mode, "train") == 0)
        t->opt.steps = 50;
    t->rank = (int)sim_env_u64("RANK", 0);
    t->world = (int)sim_env_u64("WORLD_SIZE", 1);
    t->local_rank = (int)sim_env_u64("LOCAL_RANK", 0);
    t->checksum = 1469598103934665603ull;
    t->shm = sim_dir(t->dir, sizeof(t->dir)) == 0 ? sim_shm_get() : NULL;
    if (t->shm == NULL || t->rank >= SIM_MAX_RANKS || t->opt.kernels < 1 || t->opt.jitter > 1) {
        fputs(g_usage, stderr);
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1000);
    if (strcmp(t->opt.mode, "storm") == 0)
        setenv("SIMGPU_LAUNCH_NS", "0", 0);
    int rc = run(t);
    t->opt.tally = with_rank(t->opt.tally, t->rank);
    t->opt.report = with_rank(t->opt.report, t->rank);
    if (t->opt.tally != NULL)
        rc |= train_write_tally(t->opt.tally);
    if (t->opt.report != NULL)
        rc |= train_write_report(t);
    return rc != 0 || t->failed_calls > 0 ? 1 : 0;
}
