/* SPDX-License-Identifier: Apache-2.0 */
/* The table of traced functions, made from ops.def. Static, read-only, thread-safe. */
#ifndef LTN_PROBE_OPS_H
#define LTN_PROBE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

enum ltn_op_id {
    LTN_OP_NONE = 0,
#define LTN_OP(id, name, source, cls, decoder, a, b, flags) LTN_OP_ID_##id,
#include "probe/ops.def"
    LTN_OP_COUNT,
};
_Static_assert(LTN_OP_COUNT <= LTN_OPS_MAX, "the kernel's tables by op are as long");

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
    bool own_layout; /* the three below count instead of those of the op */
    uint8_t decoder; /* enum ltn_decoder */
    uint8_t a;
    uint8_t b;
    uint8_t from_major; /* libraries of these major versions; 0 and 255: of all */
    uint8_t to_major;
};

/* The op with this id, or NULL when there is none. */
const struct ltn_op *ltn_op_get(unsigned id);

/* Id of the op with this name, or LTN_OP_NONE. */
unsigned ltn_op_find(const char *name);

/* "cuda", "driver", "graph", "nccl". */
const char *ltn_op_source_name(enum ltn_op_source source);

/* "launch", "copy", … */
const char *ltn_op_class_name(unsigned op_class);

/* All symbols, in the order of ops.def. One name may stand there several times, for libraries of
 * different major versions. */
const struct ltn_op_symbol *ltn_op_symbols(size_t *ret_count);

/* Attach cookie of a symbol in a library of this major version; 0 when the row is for others. A
 * version of 0 is unknown: rows that are not for all versions are then counted and their arguments
 * not read. */
uint64_t ltn_op_symbol_cookie(const struct ltn_op_symbol *symbol, unsigned major);

/* Major version by the SONAME: 12 of "libcudart.so.12", 11 of "libcudart.so.11.0"; 0 when it does
 * not say. */
unsigned ltn_op_soname_major(const char *soname);

#endif /* LTN_PROBE_OPS_H */
