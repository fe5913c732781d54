/* SPDX-License-Identifier: Apache-2.0 */
/* Does a uprobe really fire here? Tried on a function of the agent's own. */
#ifndef LTN_PROBE_SELF_TEST_H
#define LTN_PROBE_SELF_TEST_H

#include "base/err.h"
#include "probe/probes.h"

/* Attaches p's programs to a function of this program, calls it, and looks whether the kernel
 * counted entry and return. p must have been opened without a scope. 0; LTN_ERR_INTERNAL when the
 * probe did not fire; the error of attaching. The message says what that means. Main thread. */
int ltn_probes_self_test(struct ltn_probes *p, struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_PROBE_SELF_TEST_H */
