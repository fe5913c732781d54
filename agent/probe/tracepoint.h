/* SPDX-License-Identifier: Apache-2.0 */
/* What the running kernel's type information says about its tracepoints: signatures follow
 * backports, not versions, so they are looked up, never assumed. */
#ifndef LTN_PROBE_TRACEPOINT_H
#define LTN_PROBE_TRACEPOINT_H

#include <stdbool.h>

#include "base/attr.h"

/* Number of arguments a raw tracepoint program of this name gets (the first is args[0]). Negative:
 * LTN_ERR_NOT_FOUND (no such tracepoint), LTN_ERR_UNSUPPORTED (kernel without BTF), -EINVAL,
 * -ENOMEM. The first call reads the kernel's BTF (about 15 ms) and keeps it until
 * ltn_tracepoint_done. Thread-safe. */
int ltn_tracepoint_arg_count(const char *name) ltn_must_check;

/* Does the kernel let programs onto its own function of this name (static storage)? Tried out once
 * with a program that does nothing, then remembered. False also when the privileges do not allow to
 * try. Reads and keeps as above. Thread-safe. */
bool ltn_kernel_function_traceable(const char *name);

/* Frees what the first call kept (about 10 MB). */
void ltn_tracepoint_done(void);

#endif /* LTN_PROBE_TRACEPOINT_H */
