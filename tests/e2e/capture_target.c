// SPDX-License-Identifier: Apache-2.0
// A traced program with known truth: communicators of every making, host segments that wait in one
// known way, and the ways in which a program can leave a call without returning from it.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim_api.h"

extern ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int n_id,
                                             ncclUniqueId *ids, void *config);
extern ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int n, ncclComm_t *newcomm,
                                   void *config, int flags);
extern ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, unsigned type,
                                  ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, unsigned type,
                                      unsigned op, ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, unsigned type,
                                  unsigned root, ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t ncclReduce(const void *send, void *recv, size_t count, unsigned type,
                               unsigned op, unsigned root, ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, unsigned type,
                                 ncclComm_t comm, cudaStream_t stream);

enum {
    TYPE_I8 = 0,
    TYPE_I32 = 2,
    TYPE_I64 = 4,
    TYPE_F16 = 6,
    TYPE_F32 = 7,
    TYPE_F64 = 8,
    TYPE_BF16 = 9
};
enum { BUFFER_BYTES = 1 << 20 };

static int g_failed;

static void check(int rc, const char *what)
{
    if (rc != 0) {
        g_failed++;
        fprintf(stderr, "capture_target: %s: %d\n", what, rc);
    }
}
#define CHECK(call) check((call), #call)

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void nap_ms(double ms)
{
    uint64_t ns = (uint64_t)(ms * 1e6);
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000ULL),
                          .tv_nsec = (long)(ns % 1000000000ULL)};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) {
    }
}

static void launch(cudaStream_t stream, uint64_t ns)
{
    void *args[] = {&ns};
    CHECK(cudaLaunchKernel((const void *)&simKernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0,
                           stream));
}

static cudaStream_t open_device(int device)
{
    cudaStream_t stream = NULL;
    CHECK(cudaSetDevice(device));
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    return stream;
}

// Waits for a file that the test makes.
static void wait_for_file(const char *path)
{
    for (int i = 0; i < 30000 && access(path, F_OK) != 0; i++) {
        nap_ms(1);
    }
}

// ---- communicators ------------------------------------------------------------------------------

struct made {
    const char *name;
    ncclComm_t comm;
    unsigned sequence;
    unsigned long long bytes;
};

static void count(struct made *m, unsigned long long bytes)
{
    m->sequence++;
    m->bytes += bytes;
}

static void share_ids(const char *dir, int rank, ncclUniqueId *ids, int n)
{
    char path[512], temporary[520];
    size_t bytes = sizeof(*ids) * (size_t)n;
    snprintf(path, sizeof(path), "%s/ids", dir);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    if (rank == 0) {
        for (int i = 0; i < n; i++) {
            CHECK(ncclGetUniqueId(&ids[i]));
        }
        int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        check(write(fd, ids, bytes) != (ssize_t)bytes, "write ids");
        close(fd);
        check(rename(temporary, path), "rename ids");
        return;
    }
    wait_for_file(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd < 0 || read(fd, ids, bytes) != (ssize_t)bytes, "read ids");
    close(fd);
}

static void every_collective(struct made *m, void *a, void *b, cudaStream_t s)
{
    CHECK(ncclAllReduce(a, b, 1000, TYPE_F16, 0, m->comm, s));
    count(m, 2000);
    CHECK(ncclAllReduce(a, b, 2000, TYPE_I32, 0, m->comm, s));
    count(m, 8000);
    CHECK(ncclAllReduce(a, b, 500, TYPE_F64, 0, m->comm, s));
    count(m, 4000);
    CHECK(ncclAllReduce(a, b, 64, TYPE_I8, 0, m->comm, s));
    count(m, 64);
    CHECK(ncclAllGather(a, b, 128, TYPE_F32, m->comm, s));
    count(m, 512);
    CHECK(ncclReduceScatter(a, b, 256, TYPE_I64, 0, m->comm, s));
    count(m, 2048);
    CHECK(ncclBroadcast(a, b, 77, TYPE_F32, 0, m->comm, s));
    count(m, 308);
    CHECK(ncclBcast(a, 33, TYPE_BF16, 0, m->comm, s));
    count(m, 66);
    CHECK(ncclReduce(a, b, 10, TYPE_I64, 0, 0, m->comm, s));
    count(m, 80);
    CHECK(ncclAlltoAll(a, b, 16, TYPE_F32, m->comm, s));
    count(m, 64);
}

static void all_reduces(struct made *m, int n, void *a, void *b, cudaStream_t s)
{
    for (int i = 0; i < n; i++) {
        CHECK(ncclAllReduce(a, b, 8, TYPE_F32, 0, m->comm, s));
        count(m, 32);
    }
}

static void ring_exchange(struct made *m, int rank, int world, void *a, void *b, cudaStream_t s)
{
    CHECK(ncclGroupStart());
    CHECK(ncclSend(a, 100, TYPE_F32, (unsigned)((rank + 1) % world), m->comm, s));
    CHECK(ncclRecv(b, 100, TYPE_F32, (unsigned)((rank + world - 1) % world), m->comm, s));
    CHECK(ncclGroupEnd());
    m->bytes += 800; // but no place in the sequence
}

// One process that owns two ranks.
static void init_all(struct made *m)
{
    ncclComm_t comms[2] = {NULL, NULL};
    cudaStream_t streams[2];
    void *buffer[2];
    CHECK(ncclCommInitAll(comms, 2, NULL));
    for (int i = 0; i < 2; i++) {
        m[i].comm = comms[i];
        streams[i] = open_device(i);
        CHECK(cudaMalloc(&buffer[i], 4096));
    }
    CHECK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        all_reduces(&m[i], 4, buffer[i], buffer[i], streams[i]);
    }
    CHECK(ncclGroupEnd());
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaStreamSynchronize(streams[i]));
    }
}

// Communicators that come and go at what may be the same address.
static unsigned short_lived(void *a, cudaStream_t s)
{
    unsigned sum = 0;
    for (int i = 1; i <= 5; i++) {
        struct made m = {.name = "short"};
        ncclUniqueId id;
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclCommInitRank(&m.comm, 1, id, 0));
        all_reduces(&m, i, a, a, s);
        CHECK(cudaStreamSynchronize(s));
        CHECK(ncclCommDestroy(m.comm));
        sum += m.sequence;
    }
    return sum;
}

static void describe(const char *path, const struct made *all, size_t n, unsigned short_sum)
{
    FILE *out = fopen(path, "we");
    const char *comma = "";
    fprintf(out, "{\"pid\":%d,\"short_sum\":%u,\"comms\":[", getpid(), short_sum);
    for (size_t i = 0; i < n; i++) {
        int rank = -1, ranks = -1;
        if (all[i].comm == NULL) {
            continue;
        }
        CHECK(ncclCommUserRank(all[i].comm, &rank));
        CHECK(ncclCommCount(all[i].comm, &ranks));
        fprintf(out,
                "%s\n{\"name\":\"%s\",\"handle\":%lld,\"rank\":%d,\"ranks\":%d,\"sequence\":%u,"
                "\"bytes\":%llu}",
                comma, all[i].name, (long long)(intptr_t)all[i].comm, rank, ranks, all[i].sequence,
                all[i].bytes);
        comma = ",";
    }
    fprintf(out, "]}\n");
    check(fclose(out), "fclose");
}

// nccl RANK WORLD DIR OUT
static int run_nccl(char **words)
{
    int rank = (int)strtol(words[0], NULL, 10), world = (int)strtol(words[1], NULL, 10);
    enum { A, B, C, CHILD, REST, LEFT, ALL0, ALL1, MADE };
    struct made m[MADE] = {{.name = "rank"},  {.name = "config"}, {.name = "scalable"},
                           {.name = "child"}, {.name = "rest"},   {.name = "left"},
                           {.name = "all"},   {.name = "all"}};
    int gone[] = {1};
    ncclUniqueId ids[3];
    void *a = NULL, *b = NULL;
    cudaStream_t s = open_device(rank);
    share_ids(words[2], rank, ids, 3);
    CHECK(cudaMalloc(&a, BUFFER_BYTES));
    CHECK(cudaMalloc(&b, BUFFER_BYTES));
    CHECK(ncclCommInitRank(&m[A].comm, world, ids[0], rank));
    CHECK(ncclCommInitRankConfig(&m[B].comm, world, ids[1], rank, NULL));
    CHECK(ncclCommInitRankScalable(&m[C].comm, world, rank, 1, &ids[2], NULL));
    every_collective(&m[A], a, b, s);
    ring_exchange(&m[B], rank, world, a, b, s);
    all_reduces(&m[B], 3, a, b, s);
    all_reduces(&m[C], 7, a, b, s);
    CHECK(ncclCommSplit(m[A].comm, rank % 2, -rank, &m[CHILD].comm, NULL));
    all_reduces(&m[CHILD], 3 + rank % 2, a, b, s);
    CHECK(ncclCommSplit(m[A].comm, rank == 0 ? -1 : 0, rank, &m[REST].comm, NULL));
    if (m[REST].comm != NULL) {
        all_reduces(&m[REST], 2, a, b, s);
    }
    if (rank != gone[0] && world > 2) {
        CHECK(ncclCommShrink(m[A].comm, gone, 1, &m[LEFT].comm, NULL, 0));
        all_reduces(&m[LEFT], 6, a, b, s);
    }
    CHECK(cudaDeviceSynchronize());
    init_all(&m[ALL0]);
    CHECK(cudaSetDevice(rank));
    unsigned short_sum = short_lived(a, s);
    describe(words[3], m, MADE, short_sum);
    CHECK(ncclCommDestroy(m[CHILD].comm));
    CHECK(ncclCommDestroy(m[A].comm));
    CHECK(ncclCommAbort(m[C].comm));
    return g_failed != 0;
}

// async RANK DIR: the last rank leaves without a word, the first waits for it and asks NCCL what
// was.
static int run_async(char **words)
{
    int rank = (int)strtol(words[0], NULL, 10), error = 0;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    void *a = NULL;
    cudaStream_t s = open_device(rank);
    share_ids(words[1], rank, &id, 1);
    CHECK(cudaMalloc(&a, 4096));
    CHECK(ncclCommInitRank(&comm, 2, id, rank));
    if (rank == 1) {
        _exit(g_failed);
    }
    CHECK(ncclCommGetAsyncError(comm, &error));
    CHECK(error);
    CHECK(ncclAllReduce(a, a, 8, TYPE_F32, 0, comm, s));
    (void)cudaStreamSynchronize(s);
    CHECK(ncclCommGetAsyncError(comm, &error));
    printf("error %d\n", error);
    CHECK(ncclCommAbort(comm));
    return g_failed != 0;
}

// ---- host segments that wait in a known way -----------------------------------------------------

struct waiter {
    double ms;
    int fds[2];
    int file;
    pthread_t helper;
    char *page;
    int uffd;
};

static void wait_futex(const struct waiter *w)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(w->ms * 1e6);
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &until) == 0) {
    }
    pthread_mutex_unlock(&lock);
}

static void *late_writer(void *arg)
{
    const struct waiter *w = arg;
    nap_ms(w->ms);
    check(write(w->fds[1], "x", 1) != 1, "write");
    return NULL;
}

static void *late_reader(void *arg)
{
    const struct waiter *w = arg;
    char sink[65536];
    nap_ms(w->ms);
    check(read(w->fds[0], sink, sizeof(sink)) <= 0, "read");
    return NULL;
}

static void with_helper(struct waiter *w, void *(*fn)(void *), bool reads)
{
    char buffer[65536] = {0};
    check(pthread_create(&w->helper, NULL, fn, w), "pthread_create");
    if (reads) {
        check(read(w->fds[0], buffer, sizeof(buffer)) != 1, "read");
    } else {
        check(write(w->fds[1], buffer, sizeof(buffer)) <= 0, "write");
    }
    pthread_join(w->helper, NULL);
}

// Few long waits rather than many short ones: the scheduler's clock and its tracepoint differ by
// some microseconds at each.
static void wait_disk(const struct waiter *w)
{
    static _Alignas(4096) char block[4 << 20];
    uint64_t end = now_ns() + (uint64_t)(w->ms * 1e6);
    do {
        check(pwrite(w->file, block, sizeof(block), 0) != (ssize_t)sizeof(block), "pwrite");
        check(fsync(w->file), "fsync");
    } while (now_ns() < end);
}

static void wait_child(const struct waiter *w)
{
    pid_t pid = fork();
    if (pid == 0) {
        nap_ms(w->ms);
        _exit(0);
    }
    check(waitpid(pid, NULL, 0) != pid, "waitpid");
}

static void *late_page(void *arg)
{
    const struct waiter *w = arg;
    struct uffd_msg msg;
    check(read(w->uffd, &msg, sizeof(msg)) != (ssize_t)sizeof(msg), "uffd read");
    nap_ms(w->ms);
    struct uffdio_zeropage zero = {.range = {.start = (uintptr_t)w->page, .len = 4096}};
    check(ioctl(w->uffd, UFFDIO_ZEROPAGE, &zero), "UFFDIO_ZEROPAGE");
    return NULL;
}

static void wait_fault(struct waiter *w)
{
    check(madvise(w->page, 4096, MADV_DONTNEED), "madvise");
    check(pthread_create(&w->helper, NULL, late_page, w), "pthread_create");
    *(volatile char *)w->page; // sleeps until the helper gives the page
    pthread_join(w->helper, NULL);
}

static void touch_pages(size_t pages)
{
    char *at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at == MAP_FAILED || madvise(at, pages * 4096, MADV_NOHUGEPAGE) != 0, "mmap");
    for (size_t i = 0; i < pages; i++) {
        ((volatile char *)at)[i * 4096] = 1;
    }
    munmap(at, pages * 4096);
}

static void burn(double ms)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    double end = (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6 + ms;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    } while ((double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6 < end);
}

static bool wait_once(const char *kind, struct waiter *w)
{
    struct pollfd p = {.fd = w->fds[0], .events = POLLIN};
    if (strcmp(kind, "sleep") == 0) {
        nap_ms(w->ms);
    } else if (strcmp(kind, "futex") == 0) {
        wait_futex(w);
    } else if (strcmp(kind, "poll") == 0) {
        check(poll(&p, 1, (int)w->ms), "poll");
    } else if (strcmp(kind, "epoll") == 0) {
        struct epoll_event ev;
        check(epoll_wait(w->file, &ev, 1, (int)w->ms), "epoll_wait");
    } else if (strcmp(kind, "read") == 0) {
        with_helper(w, late_writer, true);
    } else if (strcmp(kind, "write") == 0) {
        with_helper(w, late_reader, false);
    } else if (strcmp(kind, "disk") == 0) {
        wait_disk(w);
    } else if (strcmp(kind, "child") == 0) {
        wait_child(w);
    } else if (strcmp(kind, "fault") == 0) {
        wait_fault(w);
    } else if (strcmp(kind, "pages") == 0) {
        touch_pages((size_t)w->ms);
    } else if (strcmp(kind, "cpu") == 0) {
        burn(w->ms);
    } else {
        return false;
    }
    return true;
}

static void prepare(const char *kind, struct waiter *w, const char *dir)
{
    char path[512];
    check(pipe2(w->fds, O_CLOEXEC), "pipe2");
    if (strcmp(kind, "epoll") == 0) {
        w->file = epoll_create1(EPOLL_CLOEXEC);
    } else if (strcmp(kind, "disk") == 0) {
        snprintf(path, sizeof(path), "%s/disk", dir);
        int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
        w->file = open(path, flags | O_DIRECT, 0600);
        w->file = w->file >= 0 ? w->file : open(path, flags, 0600); // a file system without it
    } else if (strcmp(kind, "write") == 0) {
        char full[65536] = {0};
        check(write(w->fds[1], full, sizeof(full)) != (ssize_t)sizeof(full), "write");
    } else if (strcmp(kind, "fault") == 0) {
        struct uffdio_api api = {.api = UFFD_API};
        w->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        w->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
        struct uffdio_register reg = {.range = {.start = (uintptr_t)w->page, .len = 4096},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};
        check(w->uffd < 0 || ioctl(w->uffd, UFFDIO_API, &api) != 0 ||
                  ioctl(w->uffd, UFFDIO_REGISTER, &reg) != 0,
              "userfaultfd");
    }
}

// What the kernel says this thread ran and waited for a CPU.
static void schedstat(uint64_t *ran_ns, uint64_t *queued_ns)
{
    char text[128] = {0};
    char *end = NULL;
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    check(fd < 0 || read(fd, text, sizeof(text) - 1) <= 0, "schedstat");
    close(fd);
    *ran_ns = strtoull(text, &end, 10);
    *queued_ns = strtoull(end, NULL, 10);
}

// wait KIND MS STEPS DIR OUT: a communicator of one rank; each step is a wait, a collective and a
// sync.
static int run_wait(char **words)
{
    const char *kind = words[0];
    struct waiter w = {.ms = strtod(words[1], NULL)};
    long steps = strtol(words[2], NULL, 10);
    void *buffer = NULL;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    cudaStream_t s = open_device(0);
    CHECK(cudaMalloc(&buffer, 4096));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    prepare(kind, &w, words[3]);
    prctl(PR_SET_TIMERSLACK, 1000);
    uint64_t from = 0, ran_from = 0, queued_from = 0, waited = 0, ran = 0, queued = 0;
    for (long i = 0; i < steps + 1; i++) {
        uint64_t ran_to, queued_to;
        if (!wait_once(kind, &w)) {
            return 2;
        }
        CHECK(ncclAllReduce(buffer, buffer, 8, TYPE_F32, 0, comm, s));
        schedstat(&ran_to, &queued_to);
        if (i > 0) { // the first segment has no beginning
            waited += now_ns() - from;
            ran += ran_to - ran_from;
        }
        CHECK(cudaStreamSynchronize(s));
        from = now_ns();
        schedstat(&ran_from, &queued_to);
        queued += i > 0 ? queued_to - queued_from : 0;
        queued_from = queued_to;
    }
    FILE *out = fopen(words[4], "we");
    double n = (double)steps;
    fprintf(out,
            "{\"pid\":%d,\"steps\":%ld,\"segment_ns\":%.0f,\"ran_ns\":%.0f,\"queued_ns\":%.0f}\n",
            getpid(), steps, (double)waited / n, (double)ran / n, (double)queued / n);
    check(fclose(out), "fclose");
    return g_failed != 0;
}

// ---- ways of life
// ---------------------------------------------------------------------------------

static int use_device(int launches)
{
    cudaStream_t s = open_device(0);
    for (int i = 0; i < launches; i++) {
        launch(s, 1000);
    }
    CHECK(cudaStreamSynchronize(s));
    return g_failed != 0;
}

// fork: a child that uses the device without exec, and the parent after it.
static int run_fork(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(use_device(7));
    }
    check(waitpid(pid, &status, 0) != pid, "waitpid");
    printf("child %d\n", (int)pid);
    return use_device(11) != 0 || status != 0;
}

// exec SELF: uses the device, then becomes another program that does.
static int run_exec(char *self)
{
    char *const words[] = {self, (char[]){"use"}, (char[]){"5"}, NULL};
    if (use_device(3) != 0) {
        return 1;
    }
    execv("/proc/self/exe", words);
    return 1;
}

static void *use_as_helper(void *arg)
{
    (void)arg;
    check(prctl(PR_SET_NAME, "helper-thread"), "thread name");
    return use_device(5) == 0 ? arg : NULL;
}

// thread: a thread with a name of its own is the only one that calls; the process ends at once.
static int run_thread(void)
{
    pthread_t t;
    check(pthread_create(&t, NULL, use_as_helper, NULL), "thread");
    check(pthread_join(t, NULL), "join");
    return 0;
}

// seccomp: from the first use on, system calls whose numbers the filter's author did not know kill
// the process.
static int run_seccomp(void)
{
    enum { NEWEST = 334 }; // rseq; above it the C library uses clone3, rseq and few others
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    filter[1].jt = 1; // clone3 is allowed
    struct sock_fprog prog = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), "seccomp");
    return use_device(500);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "nccl") == 0 && argc == 6) {
        return run_nccl(argv + 2);
    }
    if (strcmp(what, "async") == 0 && argc == 4) {
        return run_async(argv + 2);
    }
    if (strcmp(what, "wait") == 0 && argc == 7) {
        return run_wait(argv + 2);
    }
    if (strcmp(what, "use") == 0 && argc == 3) {
        return use_device((int)strtol(argv[2], NULL, 10));
    }
    if (strcmp(what, "fork") == 0) {
        return run_fork();
    }
    if (strcmp(what, "exec") == 0) {
        return run_exec(argv[0]);
    }
    if (strcmp(what, "thread") == 0) {
        return run_thread();
    }
    if (strcmp(what, "seccomp") == 0) {
        return run_seccomp();
    }
    fputs("usage: capture_target nccl|async|wait|use|fork|exec|thread|seccomp ...\n", stderr);
    return 2;
}
