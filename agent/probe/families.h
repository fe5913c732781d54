/* SPDX-License-Identifier: Apache-2.0 */
/* The host families of kernel programs: which of them this kernel and the user allow. Part of
 * agent/probe only. */
#ifndef LTN_PROBE_FAMILIES_H
#define LTN_PROBE_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct agent; /* the skeleton */

/* Which of the wanted families (LTN_HOST_*) the kernel has the tracepoints for; *note (may be NULL)
 * gets a line for each of the others. by_syscall: files also where all system calls pay for it. */
uint32_t ltn_families_possible(uint32_t wanted, bool by_syscall, struct ltn_buf *note);

/* Before load: only the programs of these families are loaded, maps of the others stay small. */
void ltn_families_choose(struct agent *skel, uint32_t families);

/* After load: attaches them. A family of which a needed program does not attach is taken back and
 * noted. Returns those that run. */
uint32_t ltn_families_attach(struct agent *skel, uint32_t families, struct ltn_buf *note);

/* "disks", "TCP", "sockets", "files", "memory". Static storage. */
const char *ltn_families_name(uint32_t family);

#endif /* LTN_PROBE_FAMILIES_H */
