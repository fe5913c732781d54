/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks by the id that call records carry, for those who show calls as they come. Thread-safe. */
#ifndef LTN_SYMBOL_CACHE_H
#define LTN_SYMBOL_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "symbol/stack.h"

struct ltn_stack_cache;

/* Holds stacks of max_bytes together; when there are more, all are given up. NULL when memory is
 * out. */
struct ltn_stack_cache *ltn_stack_cache_new(size_t max_bytes) ltn_must_check;
void ltn_stack_cache_free(struct ltn_stack_cache *c);

/* Keeps a stack by taking a reference; not keeping it for want of memory is no error. */
void ltn_stack_cache_put(struct ltn_stack_cache *c, const struct ltn_stack *s);

/* A reference to the stack, or NULL. Give back with ltn_stack_unref. */
const struct ltn_stack *ltn_stack_cache_get(struct ltn_stack_cache *c,
                                            uint64_t stack_id) ltn_must_check;

#endif /* LTN_SYMBOL_CACHE_H */
