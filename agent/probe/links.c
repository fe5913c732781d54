/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BPF_LINK_CREATE_CMD 28
#define ATTACH_TYPE_MULTI   48
#define ATTACH_TYPE_SESSION 57
#define MULTI_FLAG_RETURN   1U

/* struct of BPF_LINK_CREATE for uprobe_multi, as the kernel's uapi lays it out. */
struct link_create_attr {
    uint32_t prog_fd;
    uint32_t target_fd;
    uint32_t attach_type;
    uint32_t flags;
    uint64_t path;
    uint64_t offsets;
    uint64_t ref_ctr_offsets;
    uint64_t cookies;
    uint32_t cnt;
    uint32_t multi_flags;
    uint32_t pid;
    uint32_t pad;
};
_Static_assert(sizeof(struct link_create_attr) == 64, "fixed by the kernel");

const char *ltn_link_kind_name(enum ltn_link_kind kind)
{
    static const char *const names[] = {"session", "multi", "perf"};
    return (unsigned)kind < LTN_ARRAY_SIZE(names) ? names[kind] : "unknown";
}

int ltn_link_attach_type(enum ltn_link_kind kind)
{
    if (kind == LTN_LINK_SESSION) {
        return ATTACH_TYPE_SESSION;
    }
    return kind == LTN_LINK_MULTI ? ATTACH_TYPE_MULTI : 0;
}

int ltn_link_create(int prog_fd, enum ltn_link_kind kind, int file_fd,
                    const struct ltn_link_site *sites, size_t count, bool at_return)
{
    if (count == 0 || count > UINT32_MAX || kind == LTN_LINK_PERF) {
        return -EINVAL;
    }
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    uint64_t *offsets = calloc(count * 2, sizeof(*offsets));
    if (offsets == NULL) {
        return -ENOMEM;
    }
    uint64_t *cookies = offsets + count;
    for (size_t i = 0; i < count; i++) {
        offsets[i] = sites[i].offset_bytes;
        cookies[i] = sites[i].cookie;
    }
    struct link_create_attr attr = {
        .prog_fd = (uint32_t)prog_fd,
        .attach_type = (uint32_t)ltn_link_attach_type(kind),
        .path = (uint64_t)(uintptr_t)path,
        .offsets = (uint64_t)(uintptr_t)offsets,
        .cookies = (uint64_t)(uintptr_t)cookies,
        .cnt = (uint32_t)count,
        .multi_flags = kind == LTN_LINK_MULTI && at_return ? MULTI_FLAG_RETURN : 0,
    };
    long fd = syscall(SYS_bpf, BPF_LINK_CREATE_CMD, &attr, sizeof(attr));
    int rc = fd < 0 ? -errno : (int)fd;
    free(offsets);
    return rc;
}
