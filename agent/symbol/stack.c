/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/stack.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define TEXTS_MAX_BYTES (LTN_STACK_FRAMES * 3U * LTN_STACK_NAME_BYTES)

/* What is allocated: the stack, its frames, their texts. */
struct block {
    struct ltn_stack stack;
    _Atomic unsigned references;
    size_t bytes;
    struct ltn_stack_frame frames[];
};

static struct block *block_of(const struct ltn_stack *s)
{
    return (struct block *)(uintptr_t)((uintptr_t)s - offsetof(struct block, stack));
}

void ltn_stack_builder_init(struct ltn_stack_builder *b)
{
    b->count = 0;
    b->truncated = false;
    ltn_buf_init(&b->texts, TEXTS_MAX_BYTES);
}

void ltn_stack_builder_done(struct ltn_stack_builder *b)
{
    ltn_buf_done(&b->texts);
}

void ltn_stack_builder_reset(struct ltn_stack_builder *b)
{
    b->count = 0;
    b->truncated = false;
    ltn_buf_reset(&b->texts);
}

/* While collecting, a frame's text is the number of its first byte in texts, as the buffer moves.
 */
static const char *keep(struct ltn_stack_builder *b, const char *text)
{
    char clean[LTN_STACK_NAME_BYTES];
    ltn_text_clean(clean, sizeof(clean), text != NULL ? text : "",
                   text != NULL ? strnlen(text, sizeof(clean)) : 0);
    uintptr_t at = b->texts.len;
    if (ltn_buf_append(&b->texts, clean, strlen(clean) + 1) != 0) {
        b->truncated = true;
    }
    return (const char *)at;
}

void ltn_stack_builder_add(struct ltn_stack_builder *b, const struct ltn_stack_frame *f)
{
    if (b->count == LTN_STACK_FRAMES) {
        b->truncated = true;
        return;
    }
    struct ltn_stack_frame *to = &b->frames[b->count];
    *to = *f;
    to->function = keep(b, f->function);
    to->file = keep(b, f->file);
    to->build_id = keep(b, f->build_id);
    b->count += ltn_buf_error(&b->texts) == 0;
}

#define FNV_START 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL

static uint64_t add_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *at = p;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ at[i]) * FNV_PRIME;
    }
    return h;
}

static uint64_t add_text(uint64_t h, const char *s)
{
    return add_bytes(h, s, strlen(s) + 1);
}

/* The build id says which code it is, whatever the path and whether or not it had symbols here. */
static uint64_t content_of(const struct ltn_stack *s)
{
    uint64_t h = FNV_START;
    for (size_t i = 0; i < s->count; i++) {
        const struct ltn_stack_frame *f = &s->frames[i];
        uint64_t numbers[] = {f->kind, f->offset, f->line};
        h = add_bytes(h, numbers, sizeof(numbers));
        if (f->kind == LTN_FRAME_PYTHON) {
            h = add_text(add_text(h, f->function), f->file);
        } else {
            h = add_text(h, f->build_id[0] != '\0' ? f->build_id : f->file);
        }
    }
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15ULL;
    return h ^ h >> 29;
}

struct ltn_stack *ltn_stack_new(const struct ltn_stack_builder *b, const struct ltn_stack *id)
{
    size_t frames = b->count * sizeof(struct ltn_stack_frame);
    size_t bytes = sizeof(struct block) + frames + b->texts.len + 1;
    struct block *k = malloc(bytes);
    if (k == NULL) {
        return NULL;
    }
    char *texts = (char *)&k->frames[b->count];
    k->bytes = bytes;
    atomic_init(&k->references, 1);
    memcpy(texts, ltn_buf_str(&b->texts), b->texts.len);
    texts[b->texts.len] = '\0';
    for (size_t i = 0; i < b->count; i++) {
        k->frames[i] = b->frames[i];
        k->frames[i].function = texts + (uintptr_t)b->frames[i].function;
        k->frames[i].file = texts + (uintptr_t)b->frames[i].file;
        k->frames[i].build_id = texts + (uintptr_t)b->frames[i].build_id;
    }
    k->stack = (struct ltn_stack){.stack_id = id->stack_id,
                                  .proc_start_ns = id->proc_start_ns,
                                  .pid = id->pid,
                                  .truncated = b->truncated,
                                  .count = b->count,
                                  .frames = k->frames};
    k->stack.content = content_of(&k->stack);
    return &k->stack;
}

const struct ltn_stack *ltn_stack_ref(const struct ltn_stack *s)
{
    if (s != NULL) {
        atomic_fetch_add_explicit(&block_of(s)->references, 1, memory_order_relaxed);
    }
    return s;
}

void ltn_stack_unref(const struct ltn_stack *s)
{
    if (s != NULL &&
        atomic_fetch_sub_explicit(&block_of(s)->references, 1, memory_order_acq_rel) == 1) {
        free(block_of(s));
    }
}

size_t ltn_stack_bytes(const struct ltn_stack *s)
{
    return block_of(s)->bytes;
}

const char *ltn_stack_frame_text(const struct ltn_stack_frame *f, char *out, size_t size)
{
    const char *slash = strrchr(f->file, '/');
    const char *base = slash != NULL ? slash + 1 : f->file;
    if (f->kind == LTN_FRAME_PYTHON && f->file[0] == '\0') {
        (void)snprintf(out, size, "?");
    } else if (f->kind == LTN_FRAME_PYTHON && f->line == 0) {
        (void)snprintf(out, size, "%s (%s)", f->function, f->file);
    } else if (f->kind == LTN_FRAME_PYTHON) {
        (void)snprintf(out, size, "%s (%s:%" PRIu32 ")", f->function, f->file, f->line);
    } else if (f->function[0] != '\0') {
        (void)snprintf(out, size, "%s", f->function);
    } else if (f->offset != 0) {
        (void)snprintf(out, size, "%s+0x%" PRIx64, base, f->offset);
    } else {
        (void)snprintf(out, size, "%s", base[0] != '\0' ? base : "?");
    }
    return out;
}
