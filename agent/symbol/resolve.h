/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thread `resolve`: turns the stacks that the kernel sent into words, once for each, away from the
 * path of the calls. Bounded in everything: what waits, stacks a second, memory for symbols and
 * address spaces. A stack that cannot be taken is given up and forgotten in the kernel, so that it
 * comes again.
 */
#ifndef LTN_SYMBOL_RESOLVE_H
#define LTN_SYMBOL_RESOLVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "bpf/event.h"
#include "symbol/modules.h"
#include "symbol/stack.h"

struct ltn_resolver_opts {
    void *ctx;
    /* Called on the resolve thread with each stack; takes its own reference if it keeps it. 0, or a
     * negative code: the stack is then forgotten and will come again. */
    int (*stack)(void *ctx, const struct ltn_stack *s);
    /* Makes the kernel send a stack again. Resolve thread. */
    void *forget_ctx;
    void (*forget)(void *ctx, uint64_t stack_id);
    /* Adds the Python frames of a record, innermost first, and returns how many are not known for
     * now: the stack is then handed on and forgotten all the same. NULL: there are none. Resolve
     * thread. */
    void *python_ctx;
    size_t (*python)(void *ctx, const struct ltn_event_stack *e, struct ltn_stack_builder *b);
    size_t symbol_bytes;        /* memory for symbol tables; 0: 24 MiB */
    uint32_t stacks_per_second; /* 0: 1000 */
};

struct ltn_resolver;

/* NULL when memory is out. Free with ltn_resolver_free. */
struct ltn_resolver *ltn_resolver_new(const struct ltn_resolver_opts *opts) ltn_must_check;

/* Starts the thread. 0 or -errno. */
int ltn_resolver_start(struct ltn_resolver *r) ltn_must_check;

/* Ends the thread after what waits has been resolved. */
void ltn_resolver_stop(struct ltn_resolver *r);
void ltn_resolver_free(struct ltn_resolver *r);

/* Hands a record over (copied). 0, LTN_ERR_BUSY, LTN_ERR_CLOSED, -ENOMEM. Any thread. */
int ltn_resolver_send(struct ltn_resolver *r, const struct ltn_event_stack *e,
                      uint64_t proc_start_ns) ltn_must_check;

struct ltn_resolver_stats {
    uint64_t received_total;
    uint64_t resolved_total; /* handed on */
    uint64_t known_total;    /* came again */
    uint64_t empty_total;    /* nothing of it could be told: the process was gone */
    uint64_t refused_total;  /* over the rate or the number of a process, no room, not taken */
    struct ltn_modules_stats modules;
};
/* Any thread. */
void ltn_resolver_stats(struct ltn_resolver *r, struct ltn_resolver_stats *ret);

#endif /* LTN_SYMBOL_RESOLVE_H */
