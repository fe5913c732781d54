/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack in words: frames innermost first, with a hash of its content that two processes of the
 * same program share although they are mapped at other addresses. Immutable once made, shared by
 * reference counting; any thread.
 */
#ifndef LTN_SYMBOL_STACK_H
#define LTN_SYMBOL_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"

enum ltn_frame_kind { LTN_FRAME_NATIVE = 0, LTN_FRAME_PYTHON = 1 };

/* Longest function or file name kept, with its NUL. */
#define LTN_STACK_NAME_BYTES 256
/* As many frames as a record of the kernel can hold. */
#define LTN_STACK_FRAMES 192

struct ltn_stack_frame {
    enum ltn_frame_kind kind;
    uint32_t line;        /* Python; 0 = not known */
    uint64_t offset;      /* native: place of the call in the file, in bytes; 0 for memory without
                             file */
    const char *function; /* cleaned, demangled; "" = not known */
    const char *file; /* cleaned; native: the module as its process names it, "[vdso]", "[anon]" */
    const char *build_id; /* native: hexadecimal; "" = none */
};

struct ltn_stack {
    uint64_t stack_id; /* of the record: one process, one set of addresses */
    uint64_t content;  /* hash of the frames below */
    uint64_t proc_start_ns;
    uint32_t pid;
    bool truncated; /* there were more frames, or they could not be followed */
    size_t count;
    const struct ltn_stack_frame *frames;
};

/* Collects frames. */
struct ltn_stack_builder {
    struct ltn_stack_frame frames[LTN_STACK_FRAMES]; /* texts: places in `texts` */
    size_t count;
    struct ltn_buf texts;
    bool truncated;
};

void ltn_stack_builder_init(struct ltn_stack_builder *b);
void ltn_stack_builder_done(struct ltn_stack_builder *b);
void ltn_stack_builder_reset(struct ltn_stack_builder *b);

/* Adds a frame further out; texts are copied, cleaned and cut. Frames beyond LTN_STACK_FRAMES mark
 * the stack as truncated. */
void ltn_stack_builder_add(struct ltn_stack_builder *b, const struct ltn_stack_frame *f);

/* Makes a stack of what was collected; stack_id, pid and proc_start_ns are taken from *id. NULL
 * when memory is out. One reference is the caller's. */
struct ltn_stack *ltn_stack_new(const struct ltn_stack_builder *b,
                                const struct ltn_stack *id) ltn_must_check;

/* Takes and gives back a reference; NULL is ignored. */
const struct ltn_stack *ltn_stack_ref(const struct ltn_stack *s);
void ltn_stack_unref(const struct ltn_stack *s);

/* Bytes of memory it takes. */
size_t ltn_stack_bytes(const struct ltn_stack *s);

/* A frame as people read it: "function", "function (file:line)" or "module+0x1234". Returns out. */
const char *ltn_stack_frame_text(const struct ltn_stack_frame *f, char *out, size_t size);

#endif /* LTN_SYMBOL_STACK_H */
