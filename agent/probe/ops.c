/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/ops.h"

#include <stdlib.h>
#include <string.h>

#include "base/attr.h"

/* Names that ops.def uses for "no argument" and for flags. */
#define A_NONE LTN_ARG_NONE
#define A_0    0
#define A_1    1
#define A_2    2
#define A_3    3
#define A_4    4
#define A_5    5
#define A_6    6
#define A_7    7
#define A_8    8

enum {
    BLOCKING = LTN_OP_BLOCKING,
    ENTRY_ONLY = LTN_OP_ENTRY_ONLY,
    P2P = LTN_OP_P2P,
    DETAIL = LTN_OP_DETAIL,
    HTOD = LTN_OP_DIRECTION(1),
    DTOH = LTN_OP_DIRECTION(2),
    DTOD = LTN_OP_DIRECTION(3),
    BY_ADDRESS = LTN_OP_DIRECTION(4),
    ELEMENTS_2 = LTN_OP_SHIFT(1),
    ELEMENTS_4 = LTN_OP_SHIFT(2),
};

static const struct ltn_op ops[LTN_OP_COUNT] = {
#define LTN_OP(id, text, src, cls, decoder, a, b, flags)                                           \
    [LTN_OP_ID_##id] = {.name = (text),                                                            \
                        .source = LTN_OP_SOURCE_##src,                                             \
                        .op_class = LTN_CLASS_##cls,                                               \
                        .cookie = LTN_COOKIE(LTN_OP_ID_##id, LTN_CLASS_##cls,                      \
                                             LTN_DECODE_##decoder, A_##a, A_##b, flags)},
#include "probe/ops.def"
};

#define ANY_MAJOR 255

static const struct ltn_op_symbol symbols[] = {
#define LTN_SYMBOL(id, lib, text)                                                                  \
    {.op = LTN_OP_ID_##id, .library = LTN_OP_LIB_##lib, .symbol = (text), .to_major = ANY_MAJOR},
#define LTN_SYMBOL_ABI(id, lib, text, how, first, second, from, to)                                \
    {.op = LTN_OP_ID_##id,                                                                         \
     .library = LTN_OP_LIB_##lib,                                                                  \
     .symbol = (text),                                                                             \
     .own_layout = true,                                                                           \
     .decoder = LTN_DECODE_##how,                                                                  \
     .a = A_##first,                                                                               \
     .b = A_##second,                                                                              \
     .from_major = (from),                                                                         \
     .to_major = (to)},
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
        [LTN_CLASS_HOST_MEMORY] = "host_memory",
        [LTN_CLASS_MAPPING] = "mapping",
    };
    return op_class < LTN_ARRAY_SIZE(names) && names[op_class] != NULL ? names[op_class]
                                                                       : "unknown";
}

const struct ltn_op_symbol *ltn_op_symbols(size_t *ret_count)
{
    *ret_count = LTN_ARRAY_SIZE(symbols);
    return symbols;
}

uint64_t ltn_op_symbol_cookie(const struct ltn_op_symbol *symbol, unsigned major)
{
    uint64_t cookie = ops[symbol->op].cookie;
    bool every = symbol->from_major == 0 && symbol->to_major == ANY_MAJOR;
    if (major == 0 && !every) {
        return LTN_COOKIE_WITH(cookie, LTN_DECODE_NONE, 0, LTN_ARG_NONE);
    }
    if (!every && (major < symbol->from_major || major > symbol->to_major)) {
        return 0;
    }
    return symbol->own_layout ? LTN_COOKIE_WITH(cookie, symbol->decoder, symbol->a, symbol->b)
                              : cookie;
}

unsigned ltn_op_soname_major(const char *soname)
{
    const char *at = strstr(soname, ".so.");
    unsigned long major = at != NULL ? strtoul(at + strlen(".so."), NULL, 10) : 0;
    return major < ANY_MAJOR ? (unsigned)major : 0;
}
