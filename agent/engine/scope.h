/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a cgroup named by the user into what the kernel compares: the id of its directory and its
 * depth. Thread-safe. */
#ifndef LTN_ENGINE_SCOPE_H
#define LTN_ENGINE_SCOPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "discover/proc.h"

struct ltn_cgroup_ref {
    char
        path[LTN_PROC_CGROUP_BYTES]; /* below the root of the cgroup v2 hierarchy, "/" = the root */
    uint64_t id;
    uint32_t level; /* 0 = the root */
};

/* Resolves "/sys/fs/cgroup/x/y" or "/x/y". 0; LTN_ERR_UNSUPPORTED when no cgroup v2 hierarchy is
 * mounted; -errno (the directory); LTN_ERR_TOO_LARGE. The message says what to do. */
int ltn_cgroup_resolve(const char *name, struct ltn_cgroup_ref *ret,
                       struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_ENGINE_SCOPE_H */
