/* SPDX-License-Identifier: Apache-2.0 */
/* A call record as one JSON object. Pure, thread-safe. */
#ifndef LTN_CLI_CALL_JSON_H
#define LTN_CLI_CALL_JSON_H

#include "base/buf.h"
#include "capture/window.h"
#include "symbol/stack.h"

/* Appends the object and a newline; with the frames of its stack, innermost first, unless that is
 * NULL. Failures stick in out. */
void ltn_call_json(struct ltn_buf *out, const struct ltn_call *c, const char *node,
                   const struct ltn_stack *stack);

#endif /* LTN_CLI_CALL_JSON_H */
