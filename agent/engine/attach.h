/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the probes on the library files in use: attached when the first process maps one, detached
 * when the last is gone, and what could not be attached remembered with its reason and tried again.
 * Main thread.
 */
#ifndef LTN_ENGINE_ATTACH_H
#define LTN_ENGINE_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "discover/libs.h"
#include "probe/probes.h"

/* What is remembered at most; more are counted only. */
#define LTN_UNATTACHED_MAX 64

/* A file in use that carries no probes. */
struct ltn_unattached {
    uint32_t lib_id;
    int rc;
    char why[LTN_ERRINFO_BYTES]; /* names the file */
};

/* A file that waits for its probes, and since when. */
struct ltn_attach_wait {
    uint32_t lib_id;
    uint64_t since_ns; /* CLOCK_MONOTONIC */
};

/* Zero, but for probes, at the start. */
struct ltn_attach {
    struct ltn_probes *probes;
    struct ltn_unattached unattached[LTN_UNATTACHED_MAX];
    size_t unattached_count;
    uint64_t unattached_over; /* did not fit above */
    uint64_t failures_total;
    uint64_t attached_total; /* files, over the whole run */
    uint64_t detached_total;
    uint64_t delay_max_ns; /* longest time from a file's mapping until its probes were in place */
    uint64_t next_try_ns;
    struct ltn_attach_wait waiting[LTN_UNATTACHED_MAX];
    size_t waiting_count;
    bool pending; /* some file is to be attached at the next occasion */
};

/* Attaches to the file unless that is done. mapped_ns: when it was mapped (CLOCK_MONOTONIC), 0 when
 * that is not known. A failure is logged when it is a new one. */
void ltn_attach_lib(struct ltn_attach *a, const struct ltn_lib *lib, uint64_t mapped_ns);

/* No process maps the file any more. */
void ltn_attach_gone(struct ltn_attach *a, const struct ltn_lib *lib);

/* Attaches again what lost its cover and, now and then, what failed. */
void ltn_attach_again(struct ltn_attach *a, struct ltn_libs *libs, uint64_t now_mono_ns);

#endif /* LTN_ENGINE_ATTACH_H */
