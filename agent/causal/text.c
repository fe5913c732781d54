/* SPDX-License-Identifier: Apache-2.0 */
/* How findings are worded. */
#include <stdio.h>

#include "causal/internal.h"

const char *ltn_causal_duration(char out[DURATION_BYTES], double ns)
{
    static const struct {
        double limit;
        double unit;
        const char *name;
    } scales[] = {{1e3, 1, "ns"}, {1e6, 1e3, "µs"}, {1e9, 1e6, "ms"}, {1e300, 1e9, "s"}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(scales); i++) {
        if (ns < scales[i].limit || i + 1 == LTN_ARRAY_SIZE(scales)) {
            double v = ns / scales[i].unit;
            (void)snprintf(out, DURATION_BYTES, v < 9.95 && i > 0 ? "%.1f %s" : "%.0f %s", v,
                           scales[i].name);
            break;
        }
    }
    return out;
}

const char *ltn_causal_who(char out[WHO_BYTES], const struct causal_proc *p)
{
    if (p->rank >= 0) {
        (void)snprintf(out, WHO_BYTES, "rank %d (`%s`)", (int)p->rank, p->comm);
    } else {
        (void)snprintf(out, WHO_BYTES, "`%s` (%u)", p->comm, p->pid);
    }
    return out;
}

const char *ltn_causal_op_name(unsigned op)
{
    const struct ltn_op *o = ltn_op_get(op);
    return o != NULL ? o->name : "a call";
}

struct named {
    int32_t result;
    const char *name;
};

static const struct named cuda_names[] = {
    {1, "invalid value"},
    {2, "out of memory"},
    {3, "not initialized"},
    {35, "driver too old"},
    {46, "devices unavailable"},
    {98, "invalid device function"},
    {100, "no device"},
    {101, "invalid device"},
    {200, "invalid image"},
    {201, "invalid context"},
    {209, "no binary for this GPU"},
    {214, "uncorrectable ECC error"},
    {217, "peer access unsupported"},
    {220, "NVLink uncorrectable"},
    {400, "invalid handle"},
    {700, "illegal address"},
    {701, "launch out of resources"},
    {702, "launch timeout"},
    {710, "device assert"},
    {714, "hardware stack error"},
    {715, "illegal instruction"},
    {716, "misaligned address"},
    {717, "invalid address space"},
    {718, "invalid pc"},
    {719, "launch failure"},
    {802, "system not ready"},
    {900, "capture: unsupported"},
    {901, "capture: invalidated"},
    {904, "capture: isolation"},
    {906, "capture: implicit call"},
    {999, "unknown error"},
};

static const struct named nccl_names[] = {
    {1, "unhandled CUDA error"}, {2, "system error"},  {3, "internal error"},
    {4, "invalid argument"},     {5, "invalid usage"}, {6, "remote error"},
};

const char *ltn_causal_result_name(const struct ltn_op *op, int32_t result)
{
    bool nccl = op != NULL && op->source == LTN_OP_SOURCE_NCCL;
    const struct named *names = nccl ? nccl_names : cuda_names;
    size_t n = nccl ? LTN_ARRAY_SIZE(nccl_names) : LTN_ARRAY_SIZE(cuda_names);
    for (size_t i = 0; i < n; i++) {
        if (names[i].result == result) {
            return names[i].name;
        }
    }
    return NULL;
}

void ltn_causal_put_split(struct ltn_json *j, const char *key, const double split_ns[LTN_SPLITS])
{
    ltn_json_key(j, key);
    ltn_json_open_object(j);
    for (int i = 0; i < LTN_SPLITS; i++) {
        if (split_ns[i] >= 1.0 || split_ns[i] <= -1.0) {
            ltn_json_kv_i64(j, ltn_split_name((enum ltn_split)i), (int64_t)split_ns[i]);
        }
    }
    ltn_json_close_object(j);
}
