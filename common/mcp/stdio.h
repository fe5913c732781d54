/* SPDX-License-Identifier: Apache-2.0 */
/* MCP over a pair of descriptors: one message a line. */
#ifndef LTN_MCP_STDIO_H
#define LTN_MCP_STDIO_H

#include "mcp/mcp.h"

/* Answers lines of in on out until the end of the input. A line that is too long is skipped to its
 * end and answered with an error. 0 at the end of the input, -errno when reading or writing fails,
 * -EINTR when a signal came. Blocks. */
int ltn_mcp_stdio_run(struct ltn_mcp *m, int in, int out) ltn_must_check;

#endif /* LTN_MCP_STDIO_H */
