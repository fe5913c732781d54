/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the Python frames of a thread from outside. Right only for a thread that stays where it is:
 * use it for one that is inside a call for long, and look afterwards whether it still is. The
 * frames are read twice and everything they point to is checked and read again, so that a thread
 * that moved meanwhile is noticed. Needs the right to ptrace the process; never stops it.
 */
#ifndef LTN_SYMBOL_PYTHON_WALK_H
#define LTN_SYMBOL_PYTHON_WALK_H

#include <sys/types.h>

#include "base/attr.h"
#include "bpf/python_event.h"
#include "symbol/stack.h"

/*
 * Appends the frames of a thread, innermost first; tid as the agent's /proc shows it, p as
 * ltn_python_find made it. 0; LTN_ERR_NOT_FOUND when there is no Python on the thread; LTN_ERR_BUSY
 * when it moved; LTN_ERR_UNSUPPORTED when its state cannot be found this way; -EPERM without the
 * right, -ESRCH when it is gone, other -errno. On failure b is as it was. A frame that did not pass
 * the checks is one without names. Thread-safe. 50 us to a few ms, by depth.
 */
int ltn_python_walk(pid_t pid, pid_t tid, const struct ltn_python_process *p,
                    struct ltn_stack_builder *b) ltn_must_check;

#endif /* LTN_SYMBOL_PYTHON_WALK_H */
