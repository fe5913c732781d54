/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record as a Chrome trace ("JSON Array/Object Format"), which the Perfetto UI opens: a process
 * for each traced process, a track for each thread, spans for calls, instants for incidents,
 * counters for GPUs, steps and the agent. Written row by row; memory does not grow with the record,
 * but for 64 bytes a thread. One thread at a time.
 */
#ifndef LTN_CLI_PERFETTO_H
#define LTN_CLI_PERFETTO_H

#include <stdint.h>
#include <stdio.h>

#include "record/reader.h"

struct ltn_perfetto_result {
    uint64_t spans;
    uint64_t instants;
    uint64_t counters;
    uint64_t skipped; /* calls of threads beyond the ceiling */
};

/* Writes everything that began in [from_ns, to_ns). 0, -EIO when f takes no more, or an error of
 * common/sql/db.h with a message. */
int ltn_perfetto_write(struct ltn_record_reader *r, uint64_t from_ns, uint64_t to_ns, FILE *f,
                       struct ltn_perfetto_result *ret, struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_CLI_PERFETTO_H */
