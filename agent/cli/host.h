/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the machine, and what the host did to the traced processes, as text. Pure. */
#ifndef LTN_CLI_HOST_H
#define LTN_CLI_HOST_H

#include "base/buf.h"
#include "capture/system.h"
#include "capture/window.h"

/* Appends the section "System context": two lines of bars, at most 80 columns. */
void ltn_host_table(struct ltn_buf *out, const struct ltn_host *h, const char *bold,
                    const char *reset);

/* Appends the section "Host context": what the host families saw in the window; nothing when they
 * saw nothing. At most 80 columns. */
void ltn_host_context_table(struct ltn_buf *out, const struct ltn_host_window *h, const char *bold,
                            const char *reset);

#endif /* LTN_CLI_HOST_H */
