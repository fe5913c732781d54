/* SPDX-License-Identifier: Apache-2.0 */
/* A window as text for people: tables of at most 80 columns. Pure, thread-safe. */
#ifndef LTN_CLI_TABLE_H
#define LTN_CLI_TABLE_H

#include "base/buf.h"
#include "capture/window.h"

/* Appends the tables of a window. colour: with ANSI colours. Failures stick in out. */
void ltn_table_window(struct ltn_buf *out, const struct ltn_window *w, const char *node,
                      bool colour);

/* Appends a duration in at most six characters: "812ns", "4.1us", "17ms", "2.4s". */
void ltn_table_duration(struct ltn_buf *out, double ns);

#endif /* LTN_CLI_TABLE_H */
