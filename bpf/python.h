/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Walks the Python frames of the current thread, at the event: thread pointer -> thread state ->
 * frames. Later is too late: frames and code objects are memory that is used again at once.
 *
 * Called for records that leave the kernel only, and costs other processes one failed look-up. The
 * steps are global functions, which the verifier looks at once each and not once for each frame and
 * caller, so that its price stays small on every kernel. What they share lies in task storage:
 * newer kernels let one uprobe program interrupt another on the same CPU.
 */
#ifndef LTN_BPF_PYTHON_H
#define LTN_BPF_PYTHON_H

#include "bpf/maps.h"
#include "bpf/python_event.h"

#define PYTHON_WORDS          16
#define PYTHON_IDENTITY_WORDS 11
#define PYTHON_CONTENT_WORDS  12
#define PYTHON_TEXT_WORD      4 /* up to 3.11: word in which the data of a string begins */
#define PYTHON_BYTES_WORD     2
#define PYTHON_STEPS          160 /* frames, and the entry frames between them */
#define PYTHON_THREADS        64  /* of the lists, where they must be searched */
#define PYTHON_OWNER_ENTRY    3   /* this owner and the ones above it are no Python frames */
#define PYTHON_PRIME          0x9fb21c651e98df25ULL

struct ltn_python_walk {
    struct ltn_python_process p;
    ltn_u64 frame; /* to be read next; 0 = the end */
    ltn_u32 flags; /* LTN_PYTHON_TRUNCATED ... */
    ltn_u32 reserved;
    ltn_u64 file; /* what the code object in hand points to */
    ltn_u64 name;
    ltn_u64 table;
    ltn_u64 raw[PYTHON_WORDS];
    ltn_u64 words[PYTHON_WORDS];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, ltn_u32);
    __type(value, struct ltn_python_process);
} python_processes SEC(".maps");

/* Identities of code objects that user space was told of. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, ltn_u64);
    __type(value, ltn_u64);
} python_codes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct ltn_python_walk);
} python_walks SEC(".maps");

/* 0 also where the memory cannot be read. */
static __always_inline ltn_u64 python_word(ltn_u64 at)
{
    ltn_u64 value = 0;
    bpf_probe_read_user(&value, sizeof(value), (const void *)at);
    return value;
}

static __always_inline ltn_u64 python_mix(ltn_u64 hash, ltn_u64 word)
{
    hash = (hash ^ word) * PYTHON_PRIME;
    return hash ^ (hash >> 32);
}

static __always_inline ltn_u64 python_thread_pointer(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
#if defined(__TARGET_ARCH_x86)
    return task->thread.fsbase;
#else
    return task->thread.uw.tp_value;
#endif
}

static __always_inline ltn_u64 python_first_frame(const struct ltn_python_process *p,
                                                  ltn_u64 thread)
{
    ltn_u64 at = python_word(thread + p->thread_frame);
    return p->c_frame_first == 0xffff ? at : python_word(at + p->c_frame_first);
}

static __always_inline ltn_u64 python_thread_by_key(const struct ltn_python_process *p,
                                                    ltn_u64 self)
{
    ltn_u64 made_and_key = python_word(p->runtime + p->key);
    ltn_u64 key = made_and_key >> 32;
    if ((ltn_u32)made_and_key == 0 || key > 1023) {
        return 0;
    }
    ltn_u64 block = self + p->specific_first;
    if (key >= 32) {
        block = python_word(self + p->specific + 8 * (key >> 5));
        if (block == 0) {
            return 0;
        }
    }
    return python_word(block + 16 * (key & 31) + 8);
}

/* Searches the lists for a state of this thread with frames, the newest interpreter first. Returns
 * its first frame. */
static __always_inline ltn_u64 python_frame_by_list(const struct ltn_python_process *p,
                                                    ltn_u64 self)
{
    ltn_u64 interpreter = python_word(p->runtime + p->interpreters);
    ltn_u64 thread = 0;
    if (interpreter != 0) {
        thread = python_word(interpreter + p->interpreter_threads);
    }
    for (int i = 0; i < PYTHON_THREADS; i++) {
        if (thread == 0) {
            if (interpreter == 0) {
                break;
            }
            interpreter = python_word(interpreter + p->interpreter_next);
            thread = interpreter ? python_word(interpreter + p->interpreter_threads) : 0;
            continue;
        }
        if (python_word(thread + p->thread_id) == self) {
            ltn_u64 frame = python_first_frame(p, thread);
            if (frame != 0) {
                return frame;
            }
        }
        thread = python_word(thread + p->thread_next);
    }
    return 0;
}

/* Up to 3.11 the key is not moved when a thread goes into another interpreter. */
static __always_inline int python_needs_list(const struct ltn_python_process *p)
{
    if (p->key == 0 || p->specific_first == 0) {
        return 1;
    }
    if (!(p->flags & LTN_PYTHON_KEY_STAYS)) {
        return 0;
    }
    ltn_u64 interpreter = python_word(p->runtime + p->interpreters);
    return interpreter != 0 && python_word(interpreter + p->interpreter_next) != 0;
}

__noinline int python_find_frame(struct ltn_python_walk *w)
{
    if (!w) {
        return 0;
    }
    ltn_u64 self = python_thread_pointer() + w->p.thread_shift;
    if (python_needs_list(&w->p)) {
        w->frame = python_frame_by_list(&w->p, self);
        return 0;
    }
    ltn_u64 thread = python_thread_by_key(&w->p, self);
    w->frame = thread != 0 ? python_first_frame(&w->p, thread) : 0;
    return 0;
}

/* Bytes of a string copied to dst (at most max); 0 also where it is none. */
static __always_inline ltn_u32 python_text(const struct ltn_python_process *p, ltn_u64 at,
                                           char *dst, ltn_u32 max, ltn_u8 *kind, ltn_u8 *cut)
{
    ltn_u64 head[3] = {0}; /* length, hash, state */
    *kind = 0;
    *cut = 0;
    bpf_probe_read_user(head, sizeof(head), (const void *)(at + p->text_length));
    ltn_u32 state = (ltn_u32)head[2];
    ltn_u32 width = state >> (p->kind_bit & 31) & 7;
    if (!(state >> (p->compact_bit & 31) & 1) || (width != 1 && width != 2 && width != 4) ||
        head[0] > 4096 || (p->text_type != 0 && python_word(at + p->object_type) != p->text_type)) {
        return 0;
    }
    ltn_u64 bytes = head[0] * width;
    ltn_u64 data = at + (state >> (p->ascii_bit & 31) & 1 ? p->text_ascii : p->text_compact);
    if (bytes > max) {
        bytes = max;
        *cut = 1;
    }
    if (bpf_probe_read_user(dst, (ltn_u32)bytes, (const void *)data) != 0) {
        return 0;
    }
    *kind = (ltn_u8)width;
    return (ltn_u32)bytes;
}

static __always_inline int python_send_part(const struct ltn_python_process *p, ltn_u64 code,
                                            ltn_u64 identity, ltn_u64 table, ltn_u32 part_at)
{
    ltn_u64 size = python_word(table + p->bytes_size);
    ltn_u64 left = size > part_at ? size - part_at : 0;
    ltn_u64 now = left < LTN_PYTHON_PART_BYTES ? left : LTN_PYTHON_PART_BYTES;
    count_seen(LTN_SEEN_EMITTED);
    count_seen(LTN_SEEN_STACKS);
    struct ltn_event_python_code *e = bpf_ringbuf_reserve(&calls, sizeof(*e), 0);
    if (!e) {
        count_drop(LTN_DROP_RING_STACKS);
        return -1;
    }
    ltn_u64 pid_tgid = bpf_get_current_pid_tgid();
    e->hdr.type = LTN_EVENT_PYTHON_CODE;
    e->hdr.size = sizeof(*e);
    e->hdr.tgid = (ltn_u32)(pid_tgid >> 32);
    e->hdr.tid = (ltn_u32)pid_tgid;
    e->hdr.reserved = 0;
    e->hdr.time_ns = bpf_ktime_get_ns();
    e->identity = identity;
    e->version = p->version;
    e->first_line = (ltn_u32)python_word(code + p->code_first_line);
    e->first_traceable =
        p->code_first_traceable ? (ltn_u32)python_word(code + p->code_first_traceable) : 0;
    e->table_bytes = (ltn_u32)size;
    e->part_at = part_at;
    e->reserved = 0;
    e->file_bytes = 0;
    e->name_bytes = 0;
    e->file_kind = 0;
    e->name_kind = 0;
    e->file_cut = 0;
    e->name_cut = 0;
    if (part_at == 0) {
        e->file_bytes = (ltn_u16)python_text(p, python_word(code + p->code_file), e->file,
                                             LTN_PYTHON_FILE_BYTES, &e->file_kind, &e->file_cut);
        e->name_bytes = (ltn_u16)python_text(p, python_word(code + p->code_name), e->name,
                                             LTN_PYTHON_NAME_BYTES, &e->name_kind, &e->name_cut);
    }
    e->part_bytes = (ltn_u16)now;
    if (bpf_probe_read_user(e->part, (ltn_u32)now,
                            (const void *)(table + p->bytes_data + part_at)) != 0) {
        e->part_bytes = 0;
    }
    int whole =
        (part_at != 0 || (e->file_kind != 0 && e->name_kind != 0)) && e->part_bytes == (ltn_u16)now;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP); /* the call that it is for comes next, and wakes */
    return whole ? 0 : -1;
}

/* Tells user space of a code object; 0 when all of it went out. */
__noinline int python_send_code(struct ltn_python_walk *w, ltn_u64 code, ltn_u64 identity)
{
    if (!w) {
        return -1;
    }
    const struct ltn_python_process *p = &w->p;
    ltn_u64 table = python_word(code + p->code_table);
    if ((p->code_type != 0 && python_word(code + p->object_type) != p->code_type) ||
        (p->bytes_type != 0 && python_word(table + p->object_type) != p->bytes_type)) {
        return -1; /* no code object: its frame stays unknown */
    }
    ltn_u64 size = python_word(table + p->bytes_size);
    for (ltn_u32 i = 0; i < LTN_PYTHON_PARTS; i++) {
        if (i > 0 && i * LTN_PYTHON_PART_BYTES >= size) {
            break;
        }
        if (python_send_part(p, code, identity, table, i * LTN_PYTHON_PART_BYTES) != 0) {
            w->flags |= LTN_PYTHON_CODE_LOST;
            return -1;
        }
    }
    ltn_u64 one = 1;
    bpf_map_update_elem(&python_codes, &identity, &one, BPF_ANY);
    return 0;
}

/* Adds the content of a string or bytes object to a hash: its size, its own hash if it has one, and
 * the first words of data, which begin with word `first` counted from the size. */
static __always_inline ltn_u64 python_content(struct ltn_python_walk *w, ltn_u64 hash, ltn_u64 at,
                                              const ltn_u32 first)
{
    bpf_probe_read_user(w->words, PYTHON_CONTENT_WORDS * 8, (const void *)at);
    ltn_u64 size = w->words[0];
    hash = python_mix(python_mix(hash, size), w->words[1]);
    for (ltn_u32 i = 0; i < PYTHON_CONTENT_WORDS - first; i++) {
        ltn_u64 word = w->words[i + first];
        if (size < i * 8 + 8) { /* the last word of data, or behind it */
            word &= size > i * 8 ? (1ULL << ((size - i * 8) * 8)) - 1 : 0;
        }
        hash = python_mix(hash, word);
    }
    return hash;
}

/*
 * Up to 3.11 a code object has nothing that is its own for good: the next one may lie at the same
 * address and point to strings and tables at the same addresses, with other content.
 */
__noinline ltn_u64 python_content_hash(struct ltn_python_walk *w, ltn_u64 hash)
{
    if (!w) {
        return 0;
    }
    const struct ltn_python_process *p = &w->p;
    hash = python_content(w, hash, w->file + p->text_length, PYTHON_TEXT_WORD);
    hash = python_content(w, hash, w->name + p->text_length, PYTHON_TEXT_WORD);
    return python_content(w, hash, w->table + p->bytes_size, PYTHON_BYTES_WORD);
}

/* A word of the code object, out of those that identify it. */
static __always_inline ltn_u64 python_code_word(const struct ltn_python_walk *w, ltn_u32 offset)
{
    return w->words[(offset - w->p.code_identity) / 8 & (PYTHON_WORDS - 1)];
}

/* What is this code object's own; 0 where it cannot be read. Leaves the 88 bytes in w->words. */
static __always_inline ltn_u64 python_identity(struct ltn_python_walk *w, ltn_u64 code,
                                               ltn_u32 *first_line)
{
    *first_line = 0;
    if (bpf_probe_read_user(w->words, PYTHON_IDENTITY_WORDS * 8,
                            (const void *)(code + w->p.code_identity)) != 0) {
        return 0;
    }
    ltn_u64 hash = python_mix(w->p.seed, code);
    for (int i = 0; i < PYTHON_IDENTITY_WORDS; i++) {
        hash = python_mix(hash, w->words[i]);
    }
    ltn_u64 line = w->words[w->p.first_line_word & 15] >> (w->p.first_line_shift & 63);
    *first_line = (ltn_u32)line < 1U << 24 ? (ltn_u32)line : 0;
    if (w->p.flags & LTN_PYTHON_CODE_REUSED) {
        w->file = python_code_word(w, w->p.code_file);
        w->name = python_code_word(w, w->p.code_name);
        w->table = python_code_word(w, w->p.code_table);
        hash = python_content_hash(w, hash);
    }
    return hash != 0 ? hash : 1;
}

/* Bytes from the begin of the code to where the frame is; -1 in an index: not begun. */
static __always_inline ltn_u32 python_position(const struct ltn_python_walk *w, ltn_u64 code,
                                               ltn_u32 *flags)
{
    ltn_u64 word = w->raw[w->p.position_word & 15];
    if (w->p.flags & LTN_PYTHON_LAST_INDEX) {
        return (ltn_u32)(word >> (w->p.position_shift & 63)) << (w->p.position_scale & 7);
    }
    ltn_u64 offset = word - (code + w->p.code_bytes);
    if (offset + 2 > 1U << 30) {
        *flags |= LTN_PYTHON_NO_OFFSET;
    }
    return (ltn_u32)offset;
}

/* Reads w->frame, notes it unless it is an entry from C, and goes on to its caller. */
__noinline int python_read_frame(struct ltn_python_walk *w, struct ltn_event_stack *s)
{
    if (!w || !s) {
        return 0;
    }
    if (bpf_probe_read_user(w->raw, w->p.frame_bytes & 127, (const void *)w->frame) != 0) {
        w->flags |= LTN_PYTHON_BROKEN;
        w->frame = 0;
        return 0;
    }
    w->frame = w->raw[w->p.previous_word & 15];
    ltn_u32 owner = (ltn_u32)(w->raw[w->p.owner_word & 15] >> (w->p.owner_shift & 63)) & 0xff;
    if (owner >= PYTHON_OWNER_ENTRY) {
        return 0;
    }
    ltn_u64 code = w->raw[w->p.code_word & 15] & w->p.code_mask;
    ltn_u32 first_line;
    ltn_u32 flags = owner == 1 ? LTN_PYTHON_GENERATOR : 0;
    ltn_u32 offset = python_position(w, code, &flags);
    ltn_u64 identity = python_identity(w, code, &first_line);
    struct ltn_python_frame *f = &s->python[s->python_count & (LTN_STACK_PYTHON - 1)];
    f->code = code;
    f->identity = identity;
    f->offset = offset;
    f->flags = flags | first_line << 8;
    s->python_count += 1;
    if (identity != 0 && !bpf_map_lookup_elem(&python_codes, &identity)) {
        python_send_code(w, code, identity);
    }
    return 0;
}

/*
 * Appends the frames of the current thread to s->python and counts them in s->python_count, which
 * is 0 before; s is the task's stack_scratch. A thread without Python on it has none. Code objects
 * that are new go out on the ring before this returns, so before the stack does.
 */
static __always_inline void walk_python(struct task_struct *task, ltn_u32 tgid,
                                        struct ltn_event_stack *s)
{
    struct ltn_python_process *p = bpf_map_lookup_elem(&python_processes, &tgid);
    if (!p || (p->flags & LTN_PYTHON_NO_WALK)) {
        return;
    }
    struct ltn_python_walk *w =
        bpf_task_storage_get(&python_walks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!w) {
        count_drop(LTN_DROP_STACK_STATE);
        return;
    }
    w->p = *p;
    w->frame = 0;
    w->flags = 0;
    w->raw[14] = 0; /* never read from user memory: what a frame has not */
    w->raw[15] = 0;
    python_find_frame(w);
    for (int i = 0; i < PYTHON_STEPS; i++) {
        if (w->frame == 0 || s->python_count >= LTN_STACK_PYTHON) {
            break;
        }
        python_read_frame(w, s);
    }
    if (w->frame != 0) {
        w->flags |= LTN_PYTHON_TRUNCATED;
    }
    s->python_flags = w->flags;
}

/* The memory of a child is that of its parent. */
static __always_inline void python_forked(ltn_u32 parent, ltn_u32 child)
{
    struct ltn_python_process *p = bpf_map_lookup_elem(&python_processes, &parent);
    if (p) {
        struct ltn_python_process copy = *p;
        bpf_map_update_elem(&python_processes, &child, &copy, BPF_ANY);
    }
}

/* The process ended, or is another program now. */
static __always_inline void python_gone(ltn_u32 tgid)
{
    bpf_map_delete_elem(&python_processes, &tgid);
}

#endif /* LTN_BPF_PYTHON_H */
