/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which job a process belongs to and which rank it is, from the environment it was started with.
 * Only a fixed list of variables is ever looked at; everything else (environments hold secrets) is
 * wiped from memory before the function returns. Thread-safe.
 */
#ifndef LTN_DISCOVER_RANK_H
#define LTN_DISCOVER_RANK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"

#define LTN_RANK_TEXT_BYTES 128
#define LTN_RANK_KEY_BYTES  256

/* Where rank and world size were taken from. */
enum ltn_rank_source {
    LTN_RANK_NONE,
    LTN_RANK_TORCHRUN, /* RANK, WORLD_SIZE */
    LTN_RANK_SLURM,    /* SLURM_PROCID, SLURM_NTASKS */
    LTN_RANK_MPI,      /* OMPI_COMM_WORLD_*, PMI_* */
};

/* Where the job key was taken from. */
enum ltn_job_source {
    LTN_JOB_NONE,
    LTN_JOB_GIVEN,        /* LANTERNE_JOB */
    LTN_JOB_TORCHELASTIC, /* TORCHELASTIC_RUN_ID, unless "none" */
    LTN_JOB_SLURM,        /* SLURM_JOB_ID */
    LTN_JOB_MASTER, /* MASTER_ADDR:MASTER_PORT, behind "NODE/" when it is a loopback address */
};

/* Unknown numbers are -1, unknown texts "". All texts are cleaned. */
struct ltn_rank_identity {
    enum ltn_rank_source source;
    enum ltn_job_source job_source;
    int32_t rank;
    int32_t world_size;
    int32_t local_rank;
    char job_key[LTN_RANK_KEY_BYTES];
    char job_name[LTN_RANK_TEXT_BYTES]; /* JOB_NAME: for people, no key */
    char pod_name[LTN_RANK_TEXT_BYTES]; /* POD_NAME */
    char pod_namespace[LTN_RANK_TEXT_BYTES];
    char host_name[LTN_RANK_TEXT_BYTES];
    char cuda_visible_devices[LTN_RANK_TEXT_BYTES];
    char nvidia_visible_devices[LTN_RANK_TEXT_BYTES];
};

/* "none", "torchrun", "slurm", "mpi"; static storage. */
const char *ltn_rank_source_name(enum ltn_rank_source source);

/* Reads /proc/PID/environ (at most 256 KiB of it). node is the name of the machine, which tells the
 * jobs of different machines apart that meet on a loopback address; "" = not known. 0, -errno
 * (-EACCES without CAP_SYS_PTRACE). */
int ltn_rank_read(pid_t pid, const char *node, struct ltn_rank_identity *ret) ltn_must_check;

/* The same from a block of NUL-separated NAME=VALUE entries. Pure; cannot fail. The first entry of
 * a name counts. */
void ltn_rank_parse(const char *block, size_t len, const char *node, struct ltn_rank_identity *ret);

#endif /* LTN_DISCOVER_RANK_H */
