/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python frames of stacks, in words. Takes in what the kernel programs tell of code objects as
 * it arrives, and names frames from it; both from any thread.
 */
#ifndef LTN_SYMBOL_PYTHON_H
#define LTN_SYMBOL_PYTHON_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "bpf/python_event.h"
#include "symbol/python_codes.h"
#include "symbol/stack.h"

struct ltn_python;

/* Keeps at most so many bytes of code objects; 0: 16 MiB. NULL when memory is out. Free with
 * ltn_python_free (NULL is ignored). */
struct ltn_python *ltn_python_new(size_t max_bytes) ltn_must_check;
void ltn_python_free(struct ltn_python *p);

/* Takes in one record (LTN_EVENT_PYTHON_CODE) of size bytes, from the ring. What is no good is
 * counted. */
void ltn_python_add(struct ltn_python *p, const void *record, size_t size);

/*
 * Adds the Python frames of a record to b, innermost first. A frame whose code object is not known,
 * or in which its position makes no sense, becomes one without names; a line that is only near is
 * left out. forget is called with the identity of each code object that was not known, so that the
 * kernel can be made to tell of it again. Returns how many those were: with them told, the stack
 * would be better the next time.
 */
size_t ltn_python_frames(struct ltn_python *p, const struct ltn_event_stack *e,
                         struct ltn_stack_builder *b, void (*forget)(void *ctx, uint64_t identity),
                         void *ctx);

struct ltn_python_codes_stats ltn_python_stats(struct ltn_python *p);

#endif /* LTN_SYMBOL_PYTHON_H */
