/* SPDX-License-Identifier: Apache-2.0 */
/* Cgroups of processes: the path behind an id, and how the CPU limit held a process back. Paths
 * that were found are remembered. One thread at a time. */
#ifndef LTN_CAPTURE_CGROUPS_H
#define LTN_CAPTURE_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

#define LTN_CGROUP_PATH_BYTES 384

struct ltn_cgroups {
    struct ltn_map paths;           /* id -> text */
    struct ltn_map readings;        /* folder -> last reading of its cpu.stat */
    int mount_fd;                   /* of the v2 hierarchy; -1 = none */
    char v2[LTN_CGROUP_PATH_BYTES]; /* mount points; "" = none */
    char v1[LTN_CGROUP_PATH_BYTES]; /* of the controller cpu */
    uint64_t window;                /* number of the running window */
};

/* Looks for the hierarchies. Never fails: what is not there is not known later. */
void ltn_cgroups_init(struct ltn_cgroups *c);
void ltn_cgroups_done(struct ltn_cgroups *c);

/* A new window: cpu.stat files are read anew. */
void ltn_cgroups_turn(struct ltn_cgroups *c);

/* Path of the cgroup v2 with this id (inode of its folder), "/" for the root; NULL when it is gone
 * or the privileges do not allow to ask. Valid until ltn_cgroups_done or 4096 others later. */
const char *ltn_cgroups_path(struct ltn_cgroups *c, uint64_t id);

/* CPU limit of one cgroup over the running window. */
struct ltn_throttle {
    char path[LTN_CGROUP_PATH_BYTES];
    uint64_t periods;
    uint64_t throttled;
    uint64_t throttled_ns;
    uint64_t throttled_total_ns;
};

/* The cgroup of the process, or the one above it, that was held back longest in this window. False:
 * none was, or it is not known. The first look at a cgroup only takes its bearings. */
bool ltn_cgroups_throttle(struct ltn_cgroups *c, uint32_t pid, struct ltn_throttle *ret);

#endif /* LTN_CAPTURE_CGROUPS_H */
