/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Python code objects are called, as the kernel programs told it: turns the frames of a stack
 * into files, functions and lines. A frame is named only by the record that has its identity, so it
 * cannot be given the name of another; what is not known is said to be unknown. One thread at a
 * time.
 */
#ifndef LTN_SYMBOL_PYTHON_CODES_H
#define LTN_SYMBOL_PYTHON_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "bpf/python_event.h"

#define LTN_PYTHON_TEXT_BYTES 1024

/* One frame for people. Texts are UTF-8 without control characters and owned by the table. */
struct ltn_python_line {
    const char *file;     /* as the program has it; may be relative or "<string>" */
    const char *function; /* qualified from 3.11 on */
    uint32_t line;
    bool exact; /* false: the line is only near, or the function's first */
};

struct ltn_python_codes_stats {
    uint64_t added_total;     /* code objects taken in */
    uint64_t malformed_total; /* records that were no good */
    uint64_t dropped_total;   /* code objects let go to make room */
    uint64_t unknown_total;   /* frames asked for whose code object was not known */
    uint64_t rejected_total;  /* frames whose position or table made no sense */
    size_t codes_now;
    size_t bytes_now;
};

struct ltn_python_codes;

/* A table of at most so many bytes. When it is full, code objects that were not asked for since it
 * was last full go. NULL when memory is out. Free with ltn_python_codes_free (NULL is ignored). */
struct ltn_python_codes *ltn_python_codes_new(size_t max_bytes) ltn_must_check;
void ltn_python_codes_free(struct ltn_python_codes *c);

/* Takes in a record of size bytes. 0, LTN_ERR_MALFORMED, LTN_ERR_COUNT (too large for the table),
 * -ENOMEM. */
int ltn_python_codes_add(struct ltn_python_codes *c, const struct ltn_event_python_code *e,
                         size_t size) ltn_must_check;

/*
 * Names one frame. 0; LTN_ERR_NOT_FOUND when its code object is not known (with the identity taken
 * out of the map python_codes the kernel tells of it again), LTN_ERR_MALFORMED when its position
 * makes no sense in that code object; LTN_ERR_CLOSED when it is a frame that the interpreter is
 * still setting up, which its own tracebacks leave out too: so should the caller.
 */
int ltn_python_codes_name(struct ltn_python_codes *c, const struct ltn_python_frame *f,
                          struct ltn_python_line *ret) ltn_must_check;

struct ltn_python_codes_stats ltn_python_codes_stats(const struct ltn_python_codes *c);

#endif /* LTN_SYMBOL_PYTHON_CODES_H */
