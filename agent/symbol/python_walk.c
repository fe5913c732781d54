/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python_walk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/file.h"
#include "base/text.h"
#include "symbol/python_codes.h"

#define WORDS           14 /* of a frame, at most */
#define THREADS_MAX     1024
#define STEPS_MAX       200 /* frames and the entries from C between them */
#define TRIES           5   /* threads come and go while their list is read */
#define HEAD_BYTES      256 /* of a code object */
#define IDENTITY_BYTES  88
#define TABLE_MAX       (LTN_PYTHON_PARTS * LTN_PYTHON_PART_BYTES)
#define OWNER_ENTRY     3
#define OWNER_GENERATOR 1
#define LENGTH_MAX      4096 /* code points of a name */
#define CODES_BYTES     (4U * 1024 * 1024)

struct walk {
    pid_t pid;
    pid_t ns_tid; /* as the process itself numbers the thread */
    const struct ltn_python_process *p;
    int error; /* why memory could not be read, the last time */
};

/* One frame as it lies there, with the identity that it gets here. */
struct raw_frame {
    uint64_t at;
    uint64_t code;
    uint64_t position;
    uint64_t owner;
};

/* ---- memory ------------------------------------------------------------------------------------
 */

static bool read_bytes(struct walk *w, uint64_t at, void *out, size_t n)
{
    struct iovec local = {.iov_base = out, .iov_len = n};
    /* The address is one of the other process: nothing here follows it. */
    struct iovec remote = {.iov_base = (void *)(uintptr_t)at, .iov_len = n};
    ssize_t got = process_vm_readv(w->pid, &local, 1, &remote, 1, 0);
    if (got == (ssize_t)n) {
        return true;
    }
    w->error = got < 0 ? -errno : -EFAULT;
    return false;
}

static bool read_word(struct walk *w, uint64_t at, uint64_t *ret)
{
    return read_bytes(w, at, ret, sizeof(*ret));
}

/* A freed block has a link to the next one where an object has its reference count. */
static bool is_alive(const struct walk *w, uint64_t count)
{
    return (w->p->version & 0x10000) != 0 ||
           ((count & UINT32_MAX) != 0 && (count >> 32 & UINT16_MAX) == 0);
}

/* Is there a living object of this type? type 0: not known. */
static bool is_object(struct walk *w, uint64_t at, uint64_t type)
{
    uint64_t count;
    uint64_t got;
    return at != 0 && read_word(w, at, &count) && is_alive(w, count) &&
           read_word(w, at + w->p->object_type, &got) && (type == 0 || got == type);
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static bool first_frame(struct walk *w, uint64_t thread, uint64_t *ret)
{
    uint64_t at;
    if (!read_word(w, thread + w->p->thread_frame, &at)) {
        return false;
    }
    if (w->p->c_frame_first != 0xffff) {
        return at != 0 && read_word(w, at + w->p->c_frame_first, ret);
    }
    *ret = at;
    return true;
}

/* The C library keeps the number of a thread in its descriptor, which Python calls the thread's id.
 */
static bool is_thread(struct walk *w, uint64_t thread)
{
    uint64_t id;
    int32_t tid;
    return read_word(w, thread + w->p->thread_id, &id) &&
           read_bytes(w, id + w->p->thread_tid, &tid, sizeof(tid)) && tid == w->ns_tid;
}

/* Searches the lists once. 0 and the first frame, or LTN_ERR_NOT_FOUND, -errno. */
static int search(struct walk *w, uint64_t *ret_frame)
{
    const struct ltn_python_process *p = w->p;
    uint64_t interpreter;
    uint64_t thread;
    int steps = 0;
    bool seen = false;
    if (!read_word(w, p->runtime + p->interpreters, &interpreter)) {
        return w->error;
    }
    while (interpreter != 0 && steps < THREADS_MAX) {
        if (!read_word(w, interpreter + p->interpreter_threads, &thread)) {
            return w->error;
        }
        for (; thread != 0 && steps < THREADS_MAX; steps++) {
            uint64_t frame;
            if (is_thread(w, thread) && first_frame(w, thread, &frame)) {
                seen = true;
                if (frame != 0) {
                    *ret_frame = frame;
                    return 0;
                }
            }
            if (!read_word(w, thread + p->thread_next, &thread)) {
                return w->error;
            }
        }
        if (!read_word(w, interpreter + p->interpreter_next, &interpreter)) {
            return w->error;
        }
        steps++;
    }
    return seen ? LTN_ERR_NOT_FOUND : LTN_ERR_BUSY;
}

static int find_frame(struct walk *w, uint64_t *ret_frame)
{
    int rc = LTN_ERR_BUSY;
    for (int i = 0; i < TRIES && rc != 0 && rc != LTN_ERR_NOT_FOUND; i++) {
        rc = search(w, ret_frame);
        if (rc == -EPERM || rc == -ESRCH) {
            return rc;
        }
    }
    return rc == LTN_ERR_BUSY ? LTN_ERR_NOT_FOUND : rc;
}

/* Number of the thread in its own pid namespace. */
static int find_ns_tid(pid_t pid, pid_t tid, pid_t *ret)
{
    char path[64];
    char text[4096];
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
    long n = ltn_file_read_head(path, text, sizeof(text));
    if (n < 0) {
        return n == -ENOENT ? -ESRCH : (int)n;
    }
    char *line = strstr(text, "\nNSpid:");
    uint64_t number = (uint64_t)tid;
    if (line != NULL) {
        line += 1;
        line[strcspn(line, "\n")] = '\0';
        char *last = strrchr(line, '\t');
        if (last == NULL || !ltn_parse_u64(last + 1, &number) || number > INT32_MAX) {
            return LTN_ERR_MALFORMED;
        }
    }
    *ret = (pid_t)number;
    return 0;
}

/* ---- the frames --------------------------------------------------------------------------------
 */

/* All frames from one on; their number, or LTN_ERR_BUSY when they cannot be followed. */
static int read_chain(struct walk *w, uint64_t at, struct raw_frame *frames)
{
    const struct ltn_python_process *p = w->p;
    int count = 0;
    for (int step = 0; at != 0 && step < STEPS_MAX && count < LTN_STACK_PYTHON; step++) {
        uint64_t words[WORDS + 2] = {0};
        if (!read_bytes(w, at, words, p->frame_bytes)) {
            return LTN_ERR_BUSY;
        }
        struct raw_frame f = {
            .at = at,
            .code = words[p->code_word & 15] & p->code_mask,
            .position = words[p->position_word & 15],
            .owner = words[p->owner_word & 15] >> p->owner_shift & 0xff,
        };
        at = words[p->previous_word & 15];
        if (f.owner < OWNER_ENTRY) {
            frames[count++] = f;
        }
    }
    return count;
}

static uint32_t offset_of(const struct walk *w, const struct raw_frame *f, uint32_t *flags)
{
    const struct ltn_python_process *p = w->p;
    *flags = f->owner == OWNER_GENERATOR ? LTN_PYTHON_GENERATOR : 0;
    if ((p->flags & LTN_PYTHON_LAST_INDEX) != 0) {
        return (uint32_t)(f->position >> p->position_shift) << p->position_scale;
    }
    uint64_t offset = f->position - (f->code + p->code_bytes);
    if (offset + 2 > 1U << 30) {
        *flags |= LTN_PYTHON_NO_OFFSET;
    }
    return (uint32_t)offset;
}

/* ---- code objects ------------------------------------------------------------------------------
 */

/* A string into a record; false when it is none. */
static bool read_text(struct walk *w, uint64_t at, char *out, size_t max, ltn_u16 *ret_bytes,
                      ltn_u8 *ret_kind, ltn_u8 *ret_cut)
{
    const struct ltn_python_process *p = w->p;
    uint64_t head[3];
    if (!is_object(w, at, p->text_type) ||
        !read_bytes(w, at + p->text_length, head, sizeof(head)) || head[0] > LENGTH_MAX) {
        return false;
    }
    uint32_t state = (uint32_t)head[2];
    uint32_t width = state >> p->kind_bit & 7;
    if ((state >> p->compact_bit & 1) == 0 || (width != 1 && width != 2 && width != 4)) {
        return false;
    }
    uint64_t data = at + ((state >> p->ascii_bit & 1) != 0 ? p->text_ascii : p->text_compact);
    uint64_t bytes = head[0] * width;
    *ret_cut = bytes > max;
    *ret_bytes = (ltn_u16)(bytes > max ? max : bytes);
    *ret_kind = (ltn_u8)width;
    return read_bytes(w, data, out, *ret_bytes);
}

static uint64_t word_of(const uint8_t *head, unsigned offset)
{
    uint64_t v;
    memcpy(&v, head + offset, sizeof(v));
    return v;
}

/* The line table, part by part. */
static bool add_table(struct walk *w, uint64_t table, struct ltn_event_python_code *e,
                      struct ltn_python_codes *codes)
{
    uint64_t size;
    if (!is_object(w, table, w->p->bytes_type) || !read_word(w, table + w->p->bytes_size, &size) ||
        size > TABLE_MAX) {
        return false;
    }
    e->table_bytes = (uint32_t)size;
    uint32_t at = 0;
    do {
        uint32_t left = (uint32_t)size - at;
        e->part_at = at;
        e->part_bytes = (ltn_u16)(left < LTN_PYTHON_PART_BYTES ? left : LTN_PYTHON_PART_BYTES);
        if (!read_bytes(w, table + w->p->bytes_data + at, e->part, e->part_bytes) ||
            ltn_python_codes_add(codes, e, sizeof(*e)) != 0) {
            return false;
        }
        at += e->part_bytes;
    } while (at < size);
    return true;
}

/* Reads a code object as what frames of this identity are in. False when it is no good. */
static bool add_code(struct walk *w, uint64_t code, uint64_t identity,
                     struct ltn_event_python_code *e, struct ltn_python_codes *codes)
{
    const struct ltn_python_process *p = w->p;
    uint8_t head[HEAD_BYTES];
    uint8_t again[IDENTITY_BYTES];
    size_t n = (size_t)p->code_table + 8;
    if ((size_t)p->code_first_traceable + 4 > n) {
        n = (size_t)p->code_first_traceable + 4;
    }
    if (n > sizeof(head) || !is_object(w, code, p->code_type) || !read_bytes(w, code, head, n)) {
        return false;
    }
    e->identity = identity;
    e->version = p->version;
    memcpy(&e->first_line, head + p->code_first_line, 4);
    e->first_traceable = 0;
    if (p->code_first_traceable != 0) {
        memcpy(&e->first_traceable, head + p->code_first_traceable, 4);
    }
    return read_text(w, word_of(head, p->code_file), e->file, sizeof(e->file), &e->file_bytes,
                     &e->file_kind, &e->file_cut) &&
           read_text(w, word_of(head, p->code_name), e->name, sizeof(e->name), &e->name_bytes,
                     &e->name_kind, &e->name_cut) &&
           add_table(w, word_of(head, p->code_table), e, codes) &&
           read_bytes(w, code + p->code_identity, again, sizeof(again)) &&
           memcmp(again, head + p->code_identity, sizeof(again)) == 0;
}

/* ---- all together ------------------------------------------------------------------------------
 */

struct names {
    struct ltn_event_python_code record;
    struct ltn_python_codes *codes;
    bool good[LTN_STACK_PYTHON];
};

static void add_frame(struct walk *w, struct names *n, const struct raw_frame *f, size_t index,
                      struct ltn_stack_builder *b)
{
    struct ltn_stack_frame named = {
        .kind = LTN_FRAME_PYTHON, .function = "", .file = "", .build_id = ""};
    struct ltn_python_frame frame = {.identity = index + 1};
    struct ltn_python_line line;
    frame.offset = offset_of(w, f, &frame.flags);
    int rc = n->good[index] ? ltn_python_codes_name(n->codes, &frame, &line) : LTN_ERR_NOT_FOUND;
    if (rc == LTN_ERR_CLOSED) {
        return;
    }
    if (rc == 0) {
        named.function = line.function;
        named.file = line.file;
        named.line = line.exact ? line.line : 0;
    }
    ltn_stack_builder_add(b, &named);
}

static int walk_with(struct walk *w, struct names *n, struct ltn_stack_builder *b)
{
    struct raw_frame frames[LTN_STACK_PYTHON];
    struct raw_frame again[LTN_STACK_PYTHON];
    uint64_t at;
    int rc = find_frame(w, &at);
    if (rc < 0) {
        return rc;
    }
    memset(frames, 0, sizeof(frames));
    memset(again, 0, sizeof(again));
    int count = read_chain(w, at, frames);
    for (int i = 0; i < count; i++) {
        n->good[i] = add_code(w, frames[i].code, (uint64_t)i + 1, &n->record, n->codes);
    }
    uint64_t at_end;
    if (count < 0 || find_frame(w, &at_end) != 0 || at_end != at ||
        read_chain(w, at, again) != count ||
        memcmp(frames, again, (size_t)count * sizeof(frames[0])) != 0) {
        return LTN_ERR_BUSY;
    }
    for (int i = 0; i < count; i++) {
        add_frame(w, n, &frames[i], (size_t)i, b);
    }
    return 0;
}

int ltn_python_walk(pid_t pid, pid_t tid, const struct ltn_python_process *p,
                    struct ltn_stack_builder *b)
{
    struct walk w = {.pid = pid, .p = p};
    if (p->thread_tid == 0) {
        return LTN_ERR_UNSUPPORTED;
    }
    int rc = find_ns_tid(pid, tid, &w.ns_tid);
    if (rc < 0) {
        return rc;
    }
    struct names *n = calloc(1, sizeof(*n));
    if (n == NULL) {
        return -ENOMEM;
    }
    n->codes = ltn_python_codes_new(CODES_BYTES);
    rc = n->codes != NULL ? walk_with(&w, n, b) : -ENOMEM;
    ltn_python_codes_free(n->codes);
    free(n);
    return rc;
}
