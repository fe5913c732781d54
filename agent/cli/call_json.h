/* SPDX-License-Identifier: Apache-2.0 */
/* A call record as one JSON object. Pure, thread-safe. */
#ifndef LTN_CLI_CALL_JSON_H
#define LTN_CLI_CALL_JSON_H

#include "base/buf.h"
#include "capture/window.h"

/* Appends the object and a newline. Failures stick in out. */
void ltn_call_json(struct ltn_buf *out, const struct ltn_call *c, const char *node);

#endif /* LTN_CLI_CALL_JSON_H */
