/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uprobe links of the three kinds the kernels know: session (6.13), multi (6.6) and perf (5.15).
 * The first two are made with the bpf system call itself, since they are younger than the library.
 * One thread at a time.
 */
#ifndef LTN_PROBE_LINKS_H
#define LTN_PROBE_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum ltn_link_kind { LTN_LINK_SESSION, LTN_LINK_MULTI, LTN_LINK_PERF };

/* "session", "multi", "perf"; static storage. */
const char *ltn_link_kind_name(enum ltn_link_kind kind);

/* Value for bpf_program__set_expected_attach_type; to be set before load. 0 for perf. */
int ltn_link_attach_type(enum ltn_link_kind kind);

/* One place in a file. */
struct ltn_link_site {
    uint64_t offset_bytes;
    uint64_t cookie;
};

/* Makes one session or multi link over all sites of the file open as file_fd, for every process
 * that maps it, now or later. at_return is for kind multi: the other end of the call. Returns the
 * link's descriptor, which the caller closes (that detaches), or -errno. */
int ltn_link_create(int prog_fd, enum ltn_link_kind kind, int file_fd,
                    const struct ltn_link_site *sites, size_t count, bool at_return) ltn_must_check;

#endif /* LTN_PROBE_LINKS_H */
