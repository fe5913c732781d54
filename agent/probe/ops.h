/* SPDX-License-Identifier: Apache-2.0 */
/* The table of traced functions, made from ops.def. Static, read-only, thread-safe. */
#ifndef LTN_PROBE_OPS_H
#define LTN_PROBE_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

enum ltn_op_id {
    LTN_OP_NONE = 0,
#define LTN_OP(id, name, source, cls, decoder, a, b, flags) LTN_OP_ID_##id,
#include "probe/ops.def"
    LTN_OP_COUNT,
};

/* Who the op belongs to, as users see it in the column "source". */
enum ltn_op_source {
    LTN_OP_SOURCE_CUDA,
    LTN_OP_SOURCE_DRIVER,
    LTN_OP_SOURCE_GRAPH,
    LTN_OP_SOURCE_NCCL,
};

/* Library that exports a function. */
enum ltn_op_library { LTN_OP_LIB_CUDART, LTN_OP_LIB_CUDA_DRIVER, LTN_OP_LIB_NCCL, LTN_OP_LIBS };

struct ltn_op {
    const char *name;
    enum ltn_op_source source;
    uint8_t op_class; /* enum ltn_op_class */
    uint64_t cookie;
};

struct ltn_op_symbol {
    uint16_t op;
    enum ltn_op_library library;
    const char *symbol;
};

/* The op with this id, or NULL when there is none. */
const struct ltn_op *ltn_op_get(unsigned id);

/* Id of the op with this name, or LTN_OP_NONE. */
unsigned ltn_op_find(const char *name);

/* "cuda", "driver", "graph", "nccl". */
const char *ltn_op_source_name(enum ltn_op_source source);

/* "launch", "copy", … */
const char *ltn_op_class_name(unsigned op_class);

/* All symbols, in the order of ops.def. */
const struct ltn_op_symbol *ltn_op_symbols(size_t *ret_count);

#endif /* LTN_PROBE_OPS_H */
