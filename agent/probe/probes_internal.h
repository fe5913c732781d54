/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of agent/probe share. */
#ifndef LTN_PROBE_PROBES_INTERNAL_H
#define LTN_PROBE_PROBES_INTERNAL_H

#include "probe/probes.h"

/* Library id under which ltn_probes_attach_site keeps its link. */
#define LTN_PROBES_OWN_FILE UINT32_MAX

/* Attaches to one place of the open file. 0 or -errno. */
int ltn_probes_attach_site(struct ltn_probes *p, int fd,
                           const struct ltn_link_site *site) ltn_must_check;

/* The loaded kernel programs. */
struct bpf_object;
const struct bpf_object *ltn_probes_object(const struct ltn_probes *p);

/* Where an address of this program lies in its file. 0, LTN_ERR_NOT_FOUND or -errno. */
int ltn_probes_own_offset(uintptr_t address, uint64_t *ret_offset) ltn_must_check;

#endif /* LTN_PROBE_PROBES_INTERNAL_H */
