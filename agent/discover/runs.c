/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/runs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"

#define RING_PAGES 2 /* a power of two; 16 bytes a sample */
#define MAX_RANGES 256

struct thread_ring {
    int fd;
    struct perf_event_mmap_page *page;
};

struct range {
    uint64_t start;
    uint64_t end;
};

struct ltn_runs {
    pid_t pid;
    size_t page_bytes;
    size_t count;
    struct thread_ring threads[LTN_RUNS_THREADS];
};

struct ip_record {
    struct perf_event_header header;
    uint64_t ip;
};

static int open_thread(struct ltn_runs *r, pid_t tid)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = LTN_NS_PER_S / LTN_RUNS_HZ,
        .sample_type = PERF_SAMPLE_IP,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) {
        return errno == ESRCH ? 0 : -errno; /* the thread ended meanwhile */
    }
    void *page =
        mmap(NULL, (RING_PAGES + 1) * r->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        int rc = -errno;
        (void)close(fd);
        return rc;
    }
    r->threads[r->count++] = (struct thread_ring){.fd = fd, .page = page};
    return 0;
}

int ltn_runs_new(pid_t pid, struct ltn_runs **ret)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct ltn_runs *r = dir == NULL ? NULL : calloc(1, sizeof(*r));
    if (r == NULL) {
        int rc = dir == NULL && errno == ENOENT ? -ESRCH : dir == NULL ? -errno : -ENOMEM;
        if (dir != NULL) {
            (void)closedir(dir);
        }
        return rc;
    }
    r->pid = pid;
    r->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    const struct dirent *d;
    int rc = 0;
    while (rc == 0 && r->count < LTN_RUNS_THREADS && (d = readdir(dir)) != NULL) {
        uint64_t tid;
        if (ltn_parse_u64(d->d_name, &tid) && tid > 0 && tid <= INT_MAX) {
            rc = open_thread(r, (pid_t)tid);
        }
    }
    (void)closedir(dir);
    if (rc == 0 && r->count == 0) {
        rc = -ESRCH;
    }
    if (rc < 0) {
        ltn_runs_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void ltn_runs_free(struct ltn_runs *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        (void)munmap(r->threads[i].page, (RING_PAGES + 1) * r->page_bytes);
        (void)close(r->threads[i].fd);
    }
    free(r);
}

static bool is_of(const struct ltn_map_line *m, const struct ltn_lib *const *libs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (libs[i]->ino == m->ino && libs[i]->dev == makedev(m->dev_major, m->dev_minor)) {
            return true;
        }
    }
    return false;
}

/* Where the process has code of the files. */
static int find_ranges(pid_t pid, const struct ltn_lib *const *libs, size_t lib_count,
                       struct range *ranges, size_t *ret_count)
{
    char path[64];
    struct ltn_buf text;
    struct ltn_map_line m;
    size_t pos = 0;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    int rc = ltn_file_read(path, &text);
    while ((rc == 0 || rc == LTN_ERR_TOO_LARGE) && n < MAX_RANGES &&
           ltn_maps_next(text.data, text.len, &pos, &m)) {
        if (m.executable && m.ino != 0 && is_of(&m, libs, lib_count)) {
            ranges[n++] = (struct range){.start = m.start, .end = m.end};
        }
    }
    ltn_buf_done(&text);
    *ret_count = n;
    return rc == LTN_ERR_TOO_LARGE ? 0 : rc;
}

static void take_sample(uint64_t ip, const struct range *ranges, size_t count,
                        struct ltn_runs_result *res)
{
    res->samples++;
    for (size_t i = 0; i < count; i++) {
        if (ip >= ranges[i].start && ip < ranges[i].end) {
            res->inside++;
            return;
        }
    }
}

/* The ring is read once, after the event was stopped. Records are multiples of 8 bytes and may wrap
 * at any such step. */
static void read_ring(const struct ltn_runs *r, const struct thread_ring *t,
                      const struct range *ranges, size_t count, struct ltn_runs_result *res)
{
    const uint64_t size = RING_PAGES * r->page_bytes;
    const unsigned char *data = (const unsigned char *)t->page + r->page_bytes;
    uint64_t head = __atomic_load_n(&t->page->data_head, __ATOMIC_ACQUIRE);
    for (uint64_t at = t->page->data_tail; at + sizeof(struct perf_event_header) <= head;) {
        struct ip_record rec;
        memcpy(&rec.header, data + at % size, sizeof(rec.header));
        if (rec.header.size < sizeof(rec.header)) {
            break;
        }
        if (rec.header.type == PERF_RECORD_SAMPLE && rec.header.size >= sizeof(rec)) {
            memcpy(&rec.ip, data + (at + sizeof(rec.header)) % size, sizeof(rec.ip));
            take_sample(rec.ip, ranges, count, res);
        }
        at += rec.header.size;
    }
}

int ltn_runs_end(struct ltn_runs *r, const struct ltn_lib *const *libs, size_t lib_count,
                 struct ltn_runs_result *ret)
{
    struct range ranges[MAX_RANGES];
    struct ltn_runs_result res = {0};
    size_t count;
    for (size_t i = 0; i < r->count; i++) {
        (void)ioctl(r->threads[i].fd, PERF_EVENT_IOC_DISABLE, 0);
    }
    int rc = find_ranges(r->pid, libs, lib_count, ranges, &count);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < r->count; i++) {
        read_ring(r, &r->threads[i], ranges, count, &res);
    }
    *ret = res;
    return 0;
}
