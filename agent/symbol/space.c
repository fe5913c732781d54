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
#include "base/text.h"
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
    struct ltn_program program;
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
        (void)ltn_map_del_u64(&s->by_pid, oldest->program.pid);
        free_space(oldest);
    }
}

static struct space *space_of(struct ltn_spaces *s, const struct ltn_program *program)
{
    struct space *p = ltn_map_get_u64(&s->by_pid, program->pid);
    if (p != NULL &&
        (p->program.proc_start_ns != program->proc_start_ns || p->program.execs != program->execs ||
         p->program.code_start != program->code_start ||
         p->program.stack_start != program->stack_start)) {
        (void)ltn_map_del_u64(&s->by_pid, program->pid);
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
        p->program = *program;
        ltn_arena_init(&p->paths, 4096, PATHS_BYTES);
        if (ltn_map_put_u64(&s->by_pid, program->pid, p) != 0) {
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

/* A field of /proc/PID/stat by its number in proc(5), after the name; 0 when it is not there. */
static uint64_t stat_field(const char *text, int number)
{
    const char *at = strrchr(text, ')');
    for (int i = 2; at != NULL && i < number; i++) {
        at = strchr(at + 1, ' ');
    }
    char digits[24] = {0};
    uint64_t v = 0;
    if (at != NULL) {
        size_t n = strspn(at + 1, "0123456789");
        memcpy(digits, at + 1, n < sizeof(digits) - 1 ? n : sizeof(digits) - 1);
    }
    return ltn_parse_u64(digits, &v) ? v : 0;
}

/* Is the process still the one, and does it run the same program? An exec puts code and stack
 * elsewhere. Where the privileges do not show the places they are 0 or 1. */
static bool is_same_program(const struct ltn_program *program)
{
    enum { START_TIME = 22, START_CODE = 26, START_STACK = 28 };
    char path[32];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", program->pid);
    if (ltn_file_read_head(path, text, sizeof(text)) <= 0 ||
        ltn_proc_start_unix_ns(stat_field(text, START_TIME)) != program->proc_start_ns) {
        return false;
    }
    uint64_t code = stat_field(text, START_CODE);
    uint64_t stack = stat_field(text, START_STACK);
    return (code <= 1 || program->code_start == 0 || code == program->code_start) &&
           (stack == 0 || program->stack_start == 0 || stack == program->stack_start);
}

/* Reads the maps file; what stood there before stays when the process is gone. */
static int refresh(struct ltn_spaces *s, struct space *p)
{
    uint64_t now_ns = ltn_now_mono_ns(); /* before: what comes while it is read may be missed */
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%u/maps", p->program.pid);
    ltn_buf_reset(&s->text);
    int rc = ltn_file_read(path, &s->text);
    if (rc == LTN_ERR_TOO_LARGE) {
        rc = 0; /* what was read is used */
    }
    if (rc == 0 && !is_same_program(&p->program)) {
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

int ltn_spaces_find(struct ltn_spaces *s, const struct ltn_program *program, uint64_t event_ns,
                    uint64_t address, struct ltn_mapping **ret)
{
    struct space *p = space_of(s, program);
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

bool ltn_spaces_count_stack(struct ltn_spaces *s, const struct ltn_program *program)
{
    struct space *p = space_of(s, program);
    return p == NULL || p->stacks++ < MAX_STACKS;
}
