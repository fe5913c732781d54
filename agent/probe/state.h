/* SPDX-License-Identifier: Apache-2.0 */
/* The state behind probes.h: `load` makes it, `attach` adds files to it, `probes` reads and sets
 * what the kernel programs share with the agent. */
#ifndef LTN_PROBE_STATE_H
#define LTN_PROBE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "discover/elf.h"
#include "discover/file_id.h"
#include "probe/probes.h"

#include "agent.skel.h"

#define LTN_PROBE_FILES_MAX 1024

/* One file with its links. */
struct ltn_attached {
    uint32_t lib_id;
    uint32_t covered_by; /* another file whose links reach this one as well; 0 = own links */
    uint8_t build_id[LTN_ELF_BUILD_ID_BYTES];
    size_t build_id_len;
    struct ltn_file_id file;
    int link_fds[2];
    struct bpf_link **perf_links;
    size_t perf_link_count;
    struct ltn_probe_site *sites;
    size_t site_count;
};

/* Perf links on their way out, each of which takes the kernel about 100 ms. */
struct ltn_closing {
    pthread_t thread;
    _Atomic bool done;
    struct bpf_link **links;
    size_t count;
    struct ltn_file_id file;       /* not attached to again before they are closed */
    const _Atomic bool *attaching; /* who attaches goes first: both want the same locks */
    struct ltn_closing *next;
};

struct ltn_probes {
    struct agent *skel;
    enum ltn_link_kind kind;
    bool sched;
    bool stacks;
    uint32_t host; /* families loaded, then those that run */
    struct ltn_attached files[LTN_PROBE_FILES_MAX];
    size_t file_count;
    struct ltn_closing *closing;
    _Atomic bool attaching;
    struct ltn_buf note;
    struct ltn_buf host_note; /* host families that do not run */
    uint64_t map_bytes;
};

/* Lets every file go and waits until its links are closed. */
void ltn_probes_release_all(struct ltn_probes *p);

#endif /* LTN_PROBE_STATE_H */
