/* SPDX-License-Identifier: Apache-2.0 */
#include "record/record.h"

const char *ltn_record_drop_name(enum ltn_record_drop reason)
{
    static const char *const names[LTN_RECORD_DROPS] = {
        [LTN_RECORD_DROP_QUEUE] = "queue",       [LTN_RECORD_DROP_DISK] = "disk",
        [LTN_RECORD_DROP_CLOSED] = "closed",     [LTN_RECORD_DROP_INVALID] = "invalid",
        [LTN_RECORD_DROP_DISABLED] = "disabled",
    };
    return (unsigned)reason < LTN_RECORD_DROPS ? names[reason] : "unknown";
}

const char *ltn_record_kernel_drop_name(enum ltn_drop drop)
{
    static const char *const names[LTN_DROPS] = {
        [LTN_DROP_RING_CALLS] = "ring_calls",
        [LTN_DROP_RING_CRITICAL] = "ring_critical",
        [LTN_DROP_MAP_OP_STATS] = "map_op_stats",
        [LTN_DROP_MAP_THREADS] = "map_threads",
        [LTN_DROP_MAP_COMMS] = "map_comms",
        [LTN_DROP_TASK_STORAGE] = "task_storage",
        [LTN_DROP_NESTING] = "nesting",
        [LTN_DROP_ARGUMENT] = "argument",
        [LTN_DROP_IMPOSSIBLE] = "impossible",
        [LTN_DROP_MAP_HOST] = "map_host",
        [LTN_DROP_RING_STACKS] = "ring_stacks",
        [LTN_DROP_STACK_STATE] = "stack_state",
        [LTN_DROP_GRAPH] = "graph",
    };
    return (unsigned)drop < LTN_DROPS ? names[drop] : "unknown";
}
