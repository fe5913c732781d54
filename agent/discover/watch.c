/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/watch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "discover/maps.h"

/* Pages of a CPU's ring: a power of two, besides the control page. */
#define RING_PAGES   16
#define RECORD_BYTES 4608 /* a record is at most the fixed part and a path of 4096 bytes */

struct cpu_ring {
    int fd;
    struct perf_event_mmap_page *page;
};

struct ltn_watch {
    int epoll_fd;
    size_t page_bytes;
    size_t count;
    uint64_t lost;
    struct cpu_ring *rings;
    _Alignas(8) unsigned char record[RECORD_BYTES];
};

/* Layout of PERF_RECORD_MMAP2; the moment (sample_id) follows behind the name. */
struct mmap2_record {
    struct perf_event_header header;
    uint32_t pid;
    uint32_t tid;
    uint64_t addr;
    uint64_t len;
    uint64_t pgoff;
    uint32_t maj;
    uint32_t min;
    uint64_t ino;
    uint64_t ino_generation;
    uint32_t prot;
    uint32_t flags;
    char filename[];
};

static int open_cpu(struct ltn_watch *w, int cpu)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_DUMMY,
        .mmap = 1,
        .mmap2 = 1,
        .sample_type = PERF_SAMPLE_TIME,
        .sample_id_all = 1,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
        .watermark = 1,
        .wakeup_watermark = 1,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) {
        return errno == ENODEV || errno == ENXIO ? 0 : -errno; /* offline CPU */
    }
    void *page =
        mmap(NULL, (RING_PAGES + 1) * w->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct epoll_event ev = {.events = EPOLLIN};
    if (page == MAP_FAILED || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        int rc = -errno;
        if (page != MAP_FAILED) {
            (void)munmap(page, (RING_PAGES + 1) * w->page_bytes);
        }
        (void)close(fd);
        return rc;
    }
    w->rings[w->count++] = (struct cpu_ring){.fd = fd, .page = page};
    return 0;
}

int ltn_watch_new(struct ltn_watch **ret)
{
    struct ltn_watch *w = calloc(1, sizeof(*w));
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    if (w == NULL || cpus <= 0) {
        free(w);
        return -ENOMEM;
    }
    w->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    w->rings = calloc((size_t)cpus, sizeof(*w->rings));
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = w->rings == NULL ? -ENOMEM : w->epoll_fd < 0 ? -errno : 0;
    for (int cpu = 0; cpu < cpus && rc == 0; cpu++) {
        rc = open_cpu(w, cpu);
    }
    if (rc < 0) {
        ltn_watch_free(w);
        return rc;
    }
    *ret = w;
    return 0;
}

void ltn_watch_free(struct ltn_watch *w)
{
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < w->count; i++) {
        (void)munmap(w->rings[i].page, (RING_PAGES + 1) * w->page_bytes);
        (void)close(w->rings[i].fd);
    }
    if (w->epoll_fd >= 0) {
        (void)close(w->epoll_fd);
    }
    free(w->rings);
    free(w);
}

int ltn_watch_fd(const struct ltn_watch *w)
{
    return w->epoll_fd;
}

/* Copies bytes out of the ring, which may wrap. */
static void copy_out(const struct ltn_watch *w, const struct cpu_ring *r, uint64_t at, void *dst,
                     size_t n)
{
    size_t size = RING_PAGES * w->page_bytes;
    const unsigned char *data = (const unsigned char *)r->page + w->page_bytes;
    size_t from = at % size;
    size_t first = n < size - from ? n : size - from;
    memcpy(dst, data + from, first);
    memcpy((unsigned char *)dst + first, data, n - first);
}

enum interest { NOTHING, LIBRARY, PROGRAM };

static enum interest interest_of(const char *name, size_t len)
{
    if (ltn_lib_kind_of_path(name, len) != LTN_LIB_NONE || ltn_lib_may_embed(name, len)) {
        return LIBRARY;
    }
    /* Neither a library by its name nor memory without a file ("//anon", "[vdso]"). */
    bool file = len > 1 && name[0] == '/' && name[1] != '/';
    return file && memmem(name, len, ".so", 3) == NULL ? PROGRAM : NOTHING;
}

/* The record in w->record, `size` bytes. */
static unsigned take_record(const struct ltn_watch *w, size_t size, ltn_watch_fn fn, void *arg)
{
    const struct mmap2_record *m = (const struct mmap2_record *)(const void *)w->record;
    struct ltn_watch_event e = {.pid = (pid_t)m->pid};
    size_t room = size - offsetof(struct mmap2_record, filename) - sizeof(e.mapped_ns);
    enum interest what = interest_of(m->filename, strnlen(m->filename, room));
    if (what == NOTHING) {
        return 0;
    }
    memcpy(&e.mapped_ns, w->record + size - sizeof(e.mapped_ns), sizeof(e.mapped_ns));
    e.program = what == PROGRAM;
    fn(&e, arg);
    return 1;
}

static unsigned read_ring(struct ltn_watch *w, struct cpu_ring *r, ltn_watch_fn fn, void *arg)
{
    unsigned hits = 0;
    uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t at = r->page->data_tail;
    while (at < head) {
        struct perf_event_header header;
        copy_out(w, r, at, &header, sizeof(header));
        if (header.size < sizeof(header)) {
            at = head; /* cannot be: skip what cannot be told apart */
            break;
        }
        if (header.type == PERF_RECORD_MMAP2 && header.size <= RECORD_BYTES &&
            header.size > offsetof(struct mmap2_record, filename) + sizeof(uint64_t)) {
            copy_out(w, r, at, w->record, header.size);
            hits += take_record(w, header.size, fn, arg);
        } else if (header.type == PERF_RECORD_LOST) {
            uint64_t lost[2]; /* id, count */
            copy_out(w, r, at + sizeof(header), lost, sizeof(lost));
            w->lost += lost[1];
        }
        at += header.size;
    }
    __atomic_store_n(&r->page->data_tail, at, __ATOMIC_RELEASE);
    return hits;
}

unsigned ltn_watch_read(struct ltn_watch *w, ltn_watch_fn fn, void *arg)
{
    unsigned hits = 0;
    for (size_t i = 0; i < w->count; i++) {
        hits += read_ring(w, &w->rings[i], fn, arg);
    }
    return hits;
}

uint64_t ltn_watch_lost(const struct ltn_watch *w)
{
    return w->lost;
}
