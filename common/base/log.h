/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines of the two programs: one logfmt line per event on stderr, written with one write(2).
 * Libraries under common/ do not log. Each call site may print 20 lines a minute; what it held back
 * is said with the next line. Thread-safe.
 */
#ifndef LTN_BASE_LOG_H
#define LTN_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

enum ltn_log_level { LTN_LOG_ERROR, LTN_LOG_WARN, LTN_LOG_INFO, LTN_LOG_DEBUG };

/* What a call site has printed in the running minute; lives in the macro below. */
struct ltn_log_site {
    _Atomic uint64_t minute;
    _Atomic unsigned printed;
    _Atomic unsigned held_back;
};

/* Sets the least important level still printed (default info). */
void ltn_log_set_level(enum ltn_log_level level);

/* "error", "warn", "info", "debug" to a level; false for anything else. */
bool ltn_log_parse_level(const char *name, enum ltn_log_level *ret_level);

void ltn_log_write(struct ltn_log_site *site, enum ltn_log_level level, const char *fmt, ...)
    ltn_printf(3, 4);

#define LTN_LOG(level, ...)                                                                        \
    do {                                                                                           \
        static struct ltn_log_site ltn_site_;                                                      \
        ltn_log_write(&ltn_site_, level, __VA_ARGS__);                                             \
    } while (0)

#define ltn_log_error(...) LTN_LOG(LTN_LOG_ERROR, __VA_ARGS__)
#define ltn_log_warn(...)  LTN_LOG(LTN_LOG_WARN, __VA_ARGS__)
#define ltn_log_info(...)  LTN_LOG(LTN_LOG_INFO, __VA_ARGS__)
#define ltn_log_debug(...) LTN_LOG(LTN_LOG_DEBUG, __VA_ARGS__)

#endif /* LTN_BASE_LOG_H */
