/* SPDX-License-Identifier: Apache-2.0 */
/* What `lanterne check` says of processes and libraries: what is there, what can be attached to,
 * and why the rest cannot. */
#ifndef LTN_CLI_CHECK_LIBS_H
#define LTN_CLI_CHECK_LIBS_H

#include <stdbool.h>

#include "discover/kernel.h"
#include "probe/probes.h"

typedef void (*ltn_check_add)(void *arg, const char *name, enum ltn_finding_level level,
                              const char *value, const char *advice);

/* Looks at all processes once and tries to attach to every library of interest. probes: NULL when
 * the kernel programs do not load here. may_look: CAP_SYS_PTRACE is held. */
void ltn_check_libs(struct ltn_probes *probes, bool may_look, ltn_check_add add, void *arg);

#endif /* LTN_CLI_CHECK_LIBS_H */
