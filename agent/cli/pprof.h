/* SPDX-License-Identifier: Apache-2.0 */
/* The record as a profile for pprof: how much time calls took, by the stack that made them. One
 * thread at a time. */
#ifndef LTN_CLI_PPROF_H
#define LTN_CLI_PPROF_H

#include <stdint.h>
#include <stdio.h>

#include "record/reader.h"

/*
 * Writes the calls of a time (Unix ns) as a gzipped profile.proto. The called function is the
 * innermost frame; calls without a stack have only that. Values of a sample, each times the weight
 * of the record: calls, and time, time blocked and time waiting for a CPU in ns. Labels: op, comm,
 * pid, and rank where it is known. 0, -EIO, -ENOMEM, LTN_ERR_TOO_LARGE or an error of the record,
 * with a message.
 */
int ltn_pprof_write(struct ltn_record_reader *r, uint64_t from_ns, uint64_t to_ns, FILE *f,
                    struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_CLI_PPROF_H */
