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

void ltn_window_free(struct ltn_window *w)
{
    if (w == NULL) {
        return;
    }
    ltn_arena_done(&w->arena);
    free(w);
}
