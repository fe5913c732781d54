/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent has to say about its own state: pushing and recording that begin to fail, go on
 * failing or work again, data that was lost, and processes of which nothing is seen. Each change is
 * one line, a lasting one is repeated after 1, 5 and then every 30 minutes. Makes the lines, prints
 * nothing. One thread at a time.
 */
#ifndef LTN_CLI_HEALTH_H
#define LTN_CLI_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "engine/silence.h"
#include "push/push.h"
#include "record/record.h"

/* Something that lasts, or a count that must not grow. */
struct ltn_health_state {
    bool told;         /* it was said that it began */
    uint64_t since_ns; /* 0: all is well */
    uint64_t next_ns;  /* nothing is said before */
    unsigned repeats;
    uint64_t count; /* as said last */
};

/* Zero at the start. */
struct ltn_health {
    struct ltn_health_state push, refused, rejected, unsent, record, silent;
    uint64_t replaced_files;
};

struct ltn_health_line {
    enum ltn_log_level level;
    char text[512];
};

#define LTN_HEALTH_LINES 6

/* What is to be said now. push is NULL when nothing is pushed. now_ns: any clock that only grows
 * and is not 0. Returns the number of lines written to out. */
size_t ltn_health_look(struct ltn_health *h, uint64_t now_ns, const struct ltn_push_stats *push,
                       const struct ltn_record_stats *record,
                       struct ltn_health_line out[LTN_HEALTH_LINES]);

/* The same of processes that use a library with probes without a call being seen. At most one line.
 */
size_t ltn_health_silence(struct ltn_health *h, uint64_t now_ns, const struct ltn_silence_stats *s,
                          struct ltn_health_line out[LTN_HEALTH_LINES]);

#endif /* LTN_CLI_HEALTH_H */
