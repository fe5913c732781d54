/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/ops.h"

#include <string.h>

#include "base/attr.h"

/* Names that ops.def uses for "no argument" and for flags. */
#define A_NONE       LTN_ARG_NONE
#define F_0          0
#define F_BLOCKING   LTN_OP_BLOCKING
#define F_P2P        LTN_OP_P2P
#define F_ENTRY_ONLY LTN_OP_ENTRY_ONLY
#define A_0          0
#define A_1          1
#define A_2          2
#define A_3          3
#define A_4          4
#define A_5          5
#define A_6          6
#define A_7          7
#define A_8          8

static const struct ltn_op ops[LTN_OP_COUNT] = {
#define LTN_OP(id, text, src, cls, decoder, a, b, flags)                                           \
    [LTN_OP_ID_##id] = {.name = (text),                                                            \
                        .source = LTN_OP_SOURCE_##src,                                             \
                        .op_class = LTN_CLASS_##cls,                                               \
                        .cookie = LTN_COOKIE(LTN_OP_ID_##id, LTN_CLASS_##cls,                      \
                                             LTN_DECODE_##decoder, A_##a, A_##b, F_##flags)},
#include "probe/ops.def"
};

static const struct ltn_op_symbol symbols[] = {
#define LTN_SYMBOL(id, lib, text)                                                                  \
    {.op = LTN_OP_ID_##id, .library = LTN_OP_LIB_##lib, .symbol = (text)},
#include "probe/ops.def"
};

const struct ltn_op *ltn_op_get(unsigned id)
{
    return id != LTN_OP_NONE && id < LTN_OP_COUNT ? &ops[id] : NULL;
}

unsigned ltn_op_find(const char *name)
{
    for (unsigned id = 1; id < LTN_OP_COUNT; id++) {
        if (strcmp(ops[id].name, name) == 0) {
            return id;
        }
    }
    return LTN_OP_NONE;
}

const char *ltn_op_source_name(enum ltn_op_source source)
{
    static const char *const names[] = {"cuda", "driver", "graph", "nccl"};
    return (unsigned)source < LTN_ARRAY_SIZE(names) ? names[source] : "unknown";
}

const char *ltn_op_class_name(unsigned op_class)
{
    static const char *const names[] = {
        [LTN_CLASS_LAUNCH] = "launch",
        [LTN_CLASS_COPY] = "copy",
        [LTN_CLASS_ALLOC] = "alloc",
        [LTN_CLASS_FREE] = "free",
        [LTN_CLASS_SYNC] = "sync",
        [LTN_CLASS_GRAPH] = "graph",
        [LTN_CLASS_COLLECTIVE] = "collective",
        [LTN_CLASS_COMM] = "communicator",
        [LTN_CLASS_MEMSET] = "memset",
        [LTN_CLASS_EVENT] = "event",
        [LTN_CLASS_CONTEXT] = "context",
    };
    return op_class < LTN_ARRAY_SIZE(names) && names[op_class] != NULL ? names[op_class]
                                                                       : "unknown";
}

const struct ltn_op_symbol *ltn_op_symbols(size_t *ret_count)
{
    *ret_count = LTN_ARRAY_SIZE(symbols);
    return symbols;
}
