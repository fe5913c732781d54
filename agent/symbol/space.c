/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/space.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "discover/maps.h"
#include "discover/proc.h"

/* Mappings of code kept of one process, and bytes of their paths. */
#define MAX_MAPPINGS 8192
#define PATHS_BYTES  (1U << 20)
#define FRESH_NS     LTN_NS_PER_S
/* An address that is nowhere makes the maps file be read again, but only so many times in a row and
 * so often: code without frame pointers yields such addresses all the time. */
#define AGAIN_BURST    20
#define AGAIN_NS       (20 * LTN_NS_PER_MS)
#define PATH_MAX_BYTES 4096
/* Code without frame pointers can yield a new stack at each call; what a process fills of the
 * record is bounded. */
#define MAX_STACKS 20000

struct space {
    uint32_t pid;
    uint64_t proc_start_ns;
    uint64_t read_ns; /* when it was read; 0 = never */
    uint64_t used;    /* by count of uses */
    uint32_t stacks;
    struct ltn_mapping *mappings;
    size_t count;
    size_t room;
    struct ltn_arena paths;
};

struct ltn_spaces {
    struct ltn_map by_pid;
    size_t max;
    uint64_t uses;
    uint64_t again;    /* readings that may be made for want of an address */
    uint64_t again_ns; /* up to when they were added */
    struct ltn_buf text;
};

static void free_space(void *arg)
{
    struct space *s = arg;
    free(s->mappings);
    ltn_arena_done(&s->paths);
    free(s);
}

struct ltn_spaces *ltn_spaces_new(size_t max_processes)
{
    struct ltn_spaces *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        s->max = max_processes;
        ltn_map_init(&s->by_pid, max_processes);
        ltn_buf_init(&s->text, LTN_MAPS_MAX_BYTES);
    }
    return s;
}

void ltn_spaces_free(struct ltn_spaces *s)
{
    if (s == NULL) {
        return;
    }
    ltn_map_done(&s->by_pid, free_space);
    ltn_buf_done(&s->text);
    free(s);
}

/* The one not used for longest goes. */
static void drop_one(struct ltn_spaces *s)
{
    size_t pos = 0;
    struct space *oldest = NULL;
    struct space *each;
    while ((each = ltn_map_next(&s->by_pid, &pos)) != NULL) {
        if (oldest == NULL || each->used < oldest->used) {
            oldest = each;
        }
    }
    if (oldest != NULL) {
        (void)ltn_map_del_u64(&s->by_pid, oldest->pid);
        free_space(oldest);
    }
}

static struct space *space_of(struct ltn_spaces *s, uint32_t pid, uint64_t proc_start_ns)
{
    struct space *p = ltn_map_get_u64(&s->by_pid, pid);
    if (p != NULL && p->proc_start_ns != proc_start_ns) {
        (void)ltn_map_del_u64(&s->by_pid, pid);
        free_space(p);
        p = NULL;
    }
    if (p == NULL) {
        if (s->by_pid.len >= s->max) {
            drop_one(s);
        }
        p = calloc(1, sizeof(*p));
        if (p == NULL) {
            return NULL;
        }
        p->pid = pid;
        p->proc_start_ns = proc_start_ns;
        ltn_arena_init(&p->paths, 4096, PATHS_BYTES);
        if (ltn_map_put_u64(&s->by_pid, pid, p) != 0) {
            free_space(p);
            return NULL;
        }
    }
    p->used = ++s->uses;
    return p;
}

static struct ltn_mapping *add_mapping(struct space *p)
{
    if (p->count == p->room) {
        size_t room = p->room == 0 ? 64 : p->room * 2;
        struct ltn_mapping *more =
            room <= MAX_MAPPINGS ? realloc(p->mappings, room * sizeof(*more)) : NULL;
        if (more == NULL) {
            return NULL;
        }
        p->mappings = more;
        p->room = room;
    }
    return &p->mappings[p->count++];
}

/* What was learned of a mapping stays true while it is the same file in the same place. */
static void carry_over(struct ltn_mapping *m, const struct ltn_mapping *old, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (old[i].start == m->start && old[i].end == m->end && old[i].ino == m->ino &&
            old[i].dev_major == m->dev_major && old[i].dev_minor == m->dev_minor &&
            old[i].pgoff_bytes == m->pgoff_bytes && old[i].deleted == m->deleted) {
            m->key = old[i].key;
            m->open_error = old[i].open_error;
            return;
        }
    }
}

static void take_mappings(struct space *p, const struct ltn_buf *text)
{
    struct ltn_mapping *old = p->mappings;
    size_t old_count = p->count;
    struct ltn_map_line line;
    size_t pos = 0;
    p->mappings = NULL;
    p->count = 0;
    p->room = 0;
    ltn_arena_done(&p->paths);
    ltn_arena_init(&p->paths, 4096, PATHS_BYTES);
    while (ltn_maps_next(ltn_buf_str(text), text->len, &pos, &line)) {
        struct ltn_mapping *m = line.executable ? add_mapping(p) : NULL;
        if (m == NULL) {
            continue;
        }
        size_t len = line.path_len < PATH_MAX_BYTES ? line.path_len : 0;
        const char *path = len > 0 ? ltn_arena_strndup(&p->paths, line.path, len) : "";
        *m = (struct ltn_mapping){
            .start = line.start,
            .end = line.end,
            .pgoff_bytes = line.pgoff_bytes,
            .ino = line.ino,
            .dev_major = line.dev_major,
            .dev_minor = line.dev_minor,
            .deleted = line.deleted,
            .path = path != NULL ? path : "",
        };
        carry_over(m, old, old_count);
    }
    free(old);
}

static bool is_same_process(const struct space *p)
{
    struct ltn_proc proc;
    return ltn_proc_read_stat((pid_t)p->pid, &proc) == 0 && proc.start_unix_ns == p->proc_start_ns;
}

/* Reads the maps file; what stood there before stays when the process is gone. */
static int refresh(struct ltn_spaces *s, struct space *p)
{
    uint64_t now_ns = ltn_now_mono_ns(); /* before: what comes while it is read may be missed */
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%u/maps", p->pid);
    ltn_buf_reset(&s->text);
    int rc = ltn_file_read(path, &s->text);
    if (rc == LTN_ERR_TOO_LARGE) {
        rc = 0; /* what was read is used */
    }
    if (rc == 0 && !is_same_process(p)) {
        rc = -ESRCH;
    }
    if (rc == 0) {
        take_mappings(p, &s->text);
        p->read_ns = now_ns;
    }
    return rc;
}

/* Mappings are in the order of their addresses. */
static struct ltn_mapping *holds(const struct space *p, uint64_t address)
{
    size_t low = 0;
    size_t high = p->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct ltn_mapping *m = &p->mappings[middle];
        if (address < m->start) {
            high = middle;
        } else if (address >= m->end) {
            low = middle + 1;
        } else {
            return m;
        }
    }
    return NULL;
}

/* May the maps be read again for want of an address? */
static bool may_look_again(struct ltn_spaces *s)
{
    uint64_t now = ltn_now_mono_ns();
    uint64_t more = (now - s->again_ns) / AGAIN_NS;
    s->again = s->again + more < AGAIN_BURST ? s->again + more : AGAIN_BURST;
    s->again_ns += more * AGAIN_NS;
    if (s->again == 0) {
        return false;
    }
    s->again--;
    return true;
}

static bool is_stale(struct ltn_spaces *s, const struct space *p, uint64_t event_ns,
                     uint64_t address)
{
    if (p->read_ns == 0) {
        return true;
    }
    if (p->read_ns >= event_ns) {
        return false;
    }
    return event_ns - p->read_ns > FRESH_NS || (holds(p, address) == NULL && may_look_again(s));
}

int ltn_spaces_find(struct ltn_spaces *s, uint32_t pid, uint64_t proc_start_ns, uint64_t event_ns,
                    uint64_t address, struct ltn_mapping **ret)
{
    struct space *p = space_of(s, pid, proc_start_ns);
    if (p == NULL) {
        return -ENOMEM;
    }
    if (is_stale(s, p, event_ns, address)) {
        int rc = refresh(s, p);
        if (rc < 0 && p->read_ns == 0) {
            return rc;
        }
    }
    struct ltn_mapping *m = holds(p, address);
    if (m == NULL) {
        return LTN_ERR_NOT_FOUND;
    }
    *ret = m;
    return 0;
}

bool ltn_spaces_count_stack(struct ltn_spaces *s, uint32_t pid, uint64_t proc_start_ns)
{
    struct space *p = space_of(s, pid, proc_start_ns);
    return p == NULL || p->stacks++ < MAX_STACKS;
}
