/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/self_test.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "bpf/event.h"
#include "discover/maps.h"
#include "probe/ops.h"
#include "probe/probes_internal.h"

#define CALLS          5
#define MAPS_MAX_BYTES (4U * 1024 * 1024)

/* The function that gets the probe. */
__attribute__((noinline)) static int target(int v)
{
    __asm__ volatile("" ::: "memory");
    return v + 1;
}

int ltn_probes_own_offset(uintptr_t address, uint64_t *ret_offset)
{
    struct ltn_buf maps;
    ltn_buf_init(&maps, MAPS_MAX_BYTES);
    int rc = ltn_file_read("/proc/self/maps", &maps);
    int found = LTN_ERR_NOT_FOUND;
    const char *line = ltn_buf_str(&maps);
    while (rc == 0 && found != 0 && *line != '\0') {
        size_t len = strcspn(line, "\n");
        struct ltn_map_line m;
        if (ltn_map_line_parse(line, len, &m) == 0 && address >= m.start && address < m.end) {
            *ret_offset = address - m.start + m.pgoff_bytes;
            found = 0;
        }
        line += len + (line[len] == '\n');
    }
    ltn_buf_done(&maps);
    return rc < 0 ? rc : found;
}

static uint64_t counted_returns(const struct ltn_probe_maps *maps)
{
    struct ltn_op_stats *s = calloc(1, sizeof(*s));
    struct ltn_op_key key = {.tgid = (uint32_t)getpid(), .op = LTN_OP_NONE};
    uint64_t n = 0;
    if (s != NULL && bpf_map_lookup_elem(maps->op_stats, &key, s) == 0) {
        n = s->calls < s->returns ? s->calls : s->returns;
    }
    free(s);
    return n;
}

int ltn_probes_self_test(struct ltn_probes *p, struct ltn_errinfo *info)
{
    int (*volatile call)(int) = target;
    struct ltn_link_site site = {
        .cookie = LTN_COOKIE(LTN_OP_NONE, LTN_CLASS_LAUNCH, LTN_DECODE_NONE, 0, LTN_ARG_NONE, 0)};
    struct ltn_probe_maps maps = ltn_probes_maps(p);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : ltn_probes_own_offset((uintptr_t)call, &site.offset_bytes);
    if (rc == 0) {
        rc = ltn_probes_attach_site(p, fd, &site);
    }
    if (rc == 0) {
        int sum = 0;
        for (int i = 0; i < CALLS; i++) {
            sum = call(sum);
        }
        rc = counted_returns(&maps) == CALLS && sum == CALLS ? 0 : LTN_ERR_INTERNAL;
        (void)ltn_probes_detach(p, LTN_PROBES_OWN_FILE);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (rc == LTN_ERR_INTERNAL) {
        return ltn_errinfo_set(info, rc,
                               "probes attach but do not fire; in a container the pid namespace "
                               "must be the host's (hostPID)");
    }
    if (rc == -EACCES || rc == -EPERM) {
        return ltn_errinfo_set(info, rc,
                               "a uprobe may not be attached: links of kind perf need "
                               "CAP_SYS_ADMIN; those of kernel 6.6 and newer (session, multi) do "
                               "not");
    }
    return rc < 0 ? ltn_errinfo_set(info, rc, "a uprobe cannot be attached: %s", ltn_err_str(rc))
                  : 0;
}
