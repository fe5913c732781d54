/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a process run code of certain files? Looked at for a second or so, by the kernel's own
 * sampling of where its threads are (a CPU clock per thread, 100 times a second of CPU time), which
 * needs CAP_PERFMON. Not for permanent use. One thread at a time.
 */
#ifndef LTN_DISCOVER_RUNS_H
#define LTN_DISCOVER_RUNS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "discover/libs.h"

#define LTN_RUNS_HZ      100
#define LTN_RUNS_THREADS 64 /* looked at in one process; more are left out */

struct ltn_runs;

/* Starts looking at all threads that the process has now. 0; -ESRCH; -EACCES or -EPERM without the
 * privilege; -errno. Free with ltn_runs_free. */
int ltn_runs_new(pid_t pid, struct ltn_runs **ret) ltn_must_check;
void ltn_runs_free(struct ltn_runs *r);

struct ltn_runs_result {
    unsigned samples; /* threads in user code, wherever */
    unsigned inside;  /* of them, in code of the files */
};

/* Ends looking and tells what was seen. 0, or a negative code when the process's mappings cannot be
 * read any more. */
int ltn_runs_end(struct ltn_runs *r, const struct ltn_lib *const *libs, size_t lib_count,
                 struct ltn_runs_result *ret) ltn_must_check;

#endif /* LTN_DISCOVER_RUNS_H */
