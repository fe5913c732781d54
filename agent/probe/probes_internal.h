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

#endif /* LTN_PROBE_PROBES_INTERNAL_H */
