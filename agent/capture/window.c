/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/window.h"

#include <stdlib.h>

#include "base/attr.h"

const char *ltn_split_name(enum ltn_split split)
{
    static const char *const names[LTN_SPLITS] = {
        [LTN_SPLIT_ON_CPU] = "on_cpu", [LTN_SPLIT_RUN_QUEUE] = "run_queue",
        [LTN_SPLIT_DEVICE] = "device", [LTN_SPLIT_FUTEX] = "futex",
        [LTN_SPLIT_READ] = "read",     [LTN_SPLIT_WRITE] = "write",
        [LTN_SPLIT_POLL] = "poll",     [LTN_SPLIT_SLEEP] = "sleep",
        [LTN_SPLIT_DISK] = "disk",     [LTN_SPLIT_CHILD] = "child",
        [LTN_SPLIT_FAULT] = "fault",   [LTN_SPLIT_OTHER] = "other",
    };
    return (unsigned)split < LTN_SPLITS ? names[split] : "unknown";
}

const char *ltn_detail_name(enum ltn_detail detail)
{
    static const char *const names[LTN_DETAILS] = {
        [LTN_DETAIL_FULL] = "full",           [LTN_DETAIL_NO_STACKS] = "no_stacks",
        [LTN_DETAIL_SAMPLE_10] = "sample_10", [LTN_DETAIL_SAMPLE_100] = "sample_100",
        [LTN_DETAIL_NO_HOST] = "no_host",     [LTN_DETAIL_NO_NESTED] = "no_nested",
        [LTN_DETAIL_COUNTS] = "counts",
    };
    return (unsigned)detail < LTN_DETAILS ? names[detail] : "unknown";
}

void ltn_window_free(struct ltn_window *w)
{
    if (w == NULL) {
        return;
    }
    ltn_arena_done(&w->arena);
    free(w);
}
