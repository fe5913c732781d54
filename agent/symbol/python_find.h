/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CPython of a process and makes the entry by which the kernel programs walk its frames.
 * Only files are read, and the list of mappings: never the memory of the process, so no ptrace
 * right is needed and it works where Yama forbids ptrace altogether. Thread-safe.
 */
#ifndef LTN_SYMBOL_PYTHON_FIND_H
#define LTN_SYMBOL_PYTHON_FIND_H

#include <sys/types.h>

#include "base/err.h"
#include "bpf/python_event.h"

/* Fills in the entry of map python_processes for the process. It may be made before the interpreter
 * starts, and is good until the process calls exec; a child made by fork inherits it in the kernel.
 * 0; LTN_ERR_NOT_FOUND when the process has no CPython inside; LTN_ERR_UNSUPPORTED when it has one
 * that is not known, LTN_ERR_MALFORMED, LTN_ERR_TOO_LARGE or -errno when it cannot be looked at,
 * with the reason in *info. About a millisecond. */
int ltn_python_find(pid_t pid, struct ltn_python_process *ret,
                    struct ltn_errinfo *info) ltn_must_check;

/* "3.11", "3.13t" into out; "?" when there is none. */
#define LTN_PYTHON_VERSION_BYTES 16
void ltn_python_version_name(uint32_t version, char out[LTN_PYTHON_VERSION_BYTES]);

#endif /* LTN_SYMBOL_PYTHON_FIND_H */
