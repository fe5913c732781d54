/* SPDX-License-Identifier: Apache-2.0 */
/* What python_probe.bpf.c hands to python_frames.c for each call of the test function. */
#ifndef LTN_TEST_PYTHON_PROBE_H
#define LTN_TEST_PYTHON_PROBE_H

#include "bpf/python_event.h"

struct python_tick {
    ltn_u64 serial; /* argument of the call */
    ltn_u64 walk_ns;
    ltn_u32 tgid;
    ltn_u32 tid;
    ltn_u32 known; /* the process is in python_processes */
    ltn_u32 flags;
    ltn_u32 count;
    ltn_u32 reserved;
    struct ltn_python_frame frames[LTN_STACK_PYTHON];
};

#endif /* LTN_TEST_PYTHON_PROBE_H */
