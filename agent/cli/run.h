/* SPDX-License-Identifier: Apache-2.0 */
/* The main loop of the capturing subcommands: a tick a second until a signal or the end of the time
 * given. Main thread. */
#ifndef LTN_CLI_RUN_H
#define LTN_CLI_RUN_H

#include <stdint.h>

#include "engine/engine.h"

/* Blocks SIGINT, SIGTERM and SIGHUP for every thread started from now on, so that
 * ltn_run_until_signal gets them. */
void ltn_run_block_signals(void);

/* Runs the engine until a signal, or for duration_ns (0 = no end); tick (may be NULL) is called
 * each second. */
void ltn_run_until_signal(struct ltn_engine *e, uint64_t duration_ns, void (*tick)(void *arg),
                          void *arg);

#endif /* LTN_CLI_RUN_H */
