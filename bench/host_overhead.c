/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host families cost the programs of a machine: system calls, page faults, context
 * switches, with the agent's programs loaded and without, for a process that is watched and for one
 * that is not. Prints the best round of each; rounds of all settings are made in turn.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "bpf/event.h"
#include "probe/probes.h"

#define DEFAULT_ROUNDS 12
#define SLICES         5 /* of a round; the best counts */

struct files {
    int pair[2];
    int ping[2];
    int pong[2];
    char *pages;
    size_t page_bytes;
};

typedef void (*work_fn)(struct files *f, unsigned n);

static void do_getppid(struct files *f, unsigned n)
{
    (void)f;
    for (unsigned i = 0; i < n; i++) {
        (void)syscall(SYS_getppid);
    }
}

static void do_open(struct files *f, unsigned n)
{
    (void)f;
    for (unsigned i = 0; i < n; i++) {
        (void)close(open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
}

static void do_missing(struct files *f, unsigned n)
{
    (void)f;
    for (unsigned i = 0; i < n; i++) {
        (void)open("/dev/no-such-file", O_RDONLY | O_CLOEXEC);
    }
}

static void do_socket(struct files *f, unsigned n)
{
    char byte = 0;
    for (unsigned i = 0; i < n; i++) {
        (void)!write(f->pair[0], &byte, 1);
        (void)!read(f->pair[1], &byte, 1);
    }
}

static void do_faults(struct files *f, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        f->pages[(size_t)i * f->page_bytes] = 1;
    }
    (void)madvise(f->pages, (size_t)n * f->page_bytes, MADV_DONTNEED);
}

/* A partner on the same CPU: each turn is two switches. */
static void do_switches(struct files *f, unsigned n)
{
    char byte = 0;
    for (unsigned i = 0; i < n / 2; i++) {
        (void)!write(f->ping[1], &byte, 1);
        (void)!read(f->pong[0], &byte, 1);
    }
}

static const struct {
    const char *text;
    work_fn work;
    unsigned n;
} works[] = {
    {"system call (getppid)", do_getppid, 20000},
    {"open and close", do_open, 5000},
    {"open that fails", do_missing, 5000},
    {"write and read on a socket", do_socket, 5000},
    {"page fault", do_faults, 4096},
    {"context switch (pipe)", do_switches, 4000},
};
#define WORKS LTN_ARRAY_SIZE(works)

static const struct {
    const char *text;
    bool loaded;
    uint32_t host_off;
    bool watched;
} settings[] = {
    {"nothing", false, 0, false},
    {"no families", true, LTN_HOST_ALL, false},
    {"not watched", true, 0, false},
    {"watched", true, 0, true},
    {"w/o files", true, LTN_HOST_FILES, true},
};
#define SETTINGS LTN_ARRAY_SIZE(settings)

static int open_files(struct files *f)
{
    f->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    f->pages = mmap(NULL, 4096 * f->page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (f->pages == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, f->pair) != 0 ||
        pipe(f->ping) != 0 || pipe(f->pong) != 0) {
        return -errno;
    }
    (void)madvise(f->pages, 4096 * f->page_bytes, MADV_NOHUGEPAGE);
    return 0;
}

static pid_t start_partner(const struct files *f)
{
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        (void)close(f->ping[1]);
        while (read(f->ping[0], &byte, 1) == 1 && write(f->pong[1], &byte, 1) == 1) {
        }
        _exit(0);
    }
    return pid;
}

static int watch_self(struct ltn_probes *p)
{
    uint32_t tgid = (uint32_t)getpid();
    struct ltn_host_process fresh = {.comm = "host_overhead"};
    int fd = ltn_probes_maps(p).host_processes;
    return bpf_map_update_elem(fd, &tgid, &fresh, BPF_ANY) == 0 ? 0 : -errno;
}

static void measure(struct files *f, double best[WORKS])
{
    for (size_t w = 0; w < WORKS; w++) {
        for (int i = 0; i < SLICES; i++) {
            uint64_t start = ltn_now_mono_ns();
            works[w].work(f, works[w].n);
            double ns = (double)(ltn_now_mono_ns() - start) / works[w].n;
            best[w] = best[w] == 0 || ns < best[w] ? ns : best[w];
        }
    }
}

static int run_setting(struct files *f, size_t s, double best[WORKS])
{
    struct ltn_errinfo info = {0};
    struct ltn_probes *p = NULL;
    const struct ltn_probes_opts opts = {.host_off = settings[s].host_off,
                                         .files_by_syscall = true};
    int rc = settings[s].loaded ? ltn_probes_new(&opts, &p, &info) : 0;
    if (rc == 0 && settings[s].watched) {
        rc = watch_self(p);
    }
    if (rc == 0) {
        measure(f, best);
    } else {
        (void)fprintf(stderr, "host_overhead: cannot run here: %s\n",
                      info.msg[0] != '\0' ? info.msg : ltn_err_str(rc));
    }
    ltn_probes_free(p);
    return rc;
}

static void print_all(double best[SETTINGS][WORKS])
{
    (void)printf("%-28s", "best ns each (x nothing)");
    for (size_t s = 0; s < SETTINGS; s++) {
        (void)printf(" %14s", settings[s].text);
    }
    (void)printf("\n");
    for (size_t w = 0; w < WORKS; w++) {
        (void)printf("%-28s", works[w].text);
        for (size_t s = 0; s < SETTINGS; s++) {
            (void)printf(" %7.0f (%4.2f)", best[s][w], best[s][w] / best[0][w]);
        }
        (void)printf("\n");
    }
}

int main(int argc, char **argv)
{
    static double best[SETTINGS][WORKS];
    struct files f = {0};
    uint64_t rounds = DEFAULT_ROUNDS;
    if (argc > 2 || (argc == 2 && (!ltn_parse_u64(argv[1], &rounds) || rounds == 0))) {
        (void)fputs("usage: host_overhead [ROUNDS]\n", stderr);
        return 2;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    if (open_files(&f) != 0 || sched_setaffinity(0, sizeof(one), &one) != 0) {
        return 3;
    }
    pid_t partner = start_partner(&f);
    int rc = partner > 0 ? 0 : -errno;
    for (uint64_t r = 0; r < rounds && rc == 0; r++) {
        for (size_t s = 0; s < SETTINGS && rc == 0; s++) {
            rc = run_setting(&f, s, best[s]);
        }
    }
    (void)close(f.ping[1]);
    (void)waitpid(partner, NULL, 0);
    if (rc == 0) {
        print_all(best);
    }
    return rc == 0 ? 0 : 3;
}
