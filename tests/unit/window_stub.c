/* SPDX-License-Identifier: Apache-2.0 */
/* The two functions of capture/window.h, for tests that are built without the capture library. */
#include <stdlib.h>

#include "base/attr.h"
#include "capture/window.h"

const char *ltn_split_name(enum ltn_split split)
{
    static const char *const names[LTN_SPLITS] = {"on_cpu", "run_queue", "device", "futex",
                                                  "read",   "write",     "poll",   "sleep",
                                                  "disk",   "child",     "fault",  "other"};
    return (unsigned)split < LTN_SPLITS ? names[split] : "unknown";
}

void ltn_window_free(struct ltn_window *w)
{
    if (w != NULL) {
        ltn_arena_done(&w->arena);
        free(w);
    }
}
