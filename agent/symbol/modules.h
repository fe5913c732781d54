/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol tables of the files that processes run, one for each distinct file: by build id, so that
 * copies, containers and restarts share it. Bounded in bytes and in files; what was not used for
 * longest goes first. One thread at a time.
 */
#ifndef LTN_SYMBOL_MODULES_H
#define LTN_SYMBOL_MODULES_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "symbol/space.h"
#include "symbol/table.h"

struct ltn_modules;

/* NULL when memory is out. */
struct ltn_modules *ltn_modules_new(size_t max_bytes, size_t max_files) ltn_must_check;
void ltn_modules_free(struct ltn_modules *m);

/* Table of the file behind a mapping of the process, read when it is not there yet: through
 * /proc/PID/map_files (also deleted and replaced files), else by its path below /proc/PID/root.
 * Sets the mapping's key. NULL when it cannot be read, which is remembered in the mapping. Valid
 * until the next call. */
struct ltn_symtab *ltn_modules_of(struct ltn_modules *m, uint32_t pid, struct ltn_mapping *map);

/* Name of the function at a place of the mapped file, as ltn_symtab_name, which opens the file
 * again when it must and can. Once the names of a stack are told, ltn_modules_rest. */
int ltn_modules_name(struct ltn_modules *m, uint32_t pid, struct ltn_mapping *map,
                     uint64_t file_offset, char *out, size_t size) ltn_must_check;

/* Closes the files. */
void ltn_modules_rest(struct ltn_modules *m);

/* The vDSO, which every process has from the same kernel. NULL when it cannot be read. */
struct ltn_symtab *ltn_modules_vdso(struct ltn_modules *m);

struct ltn_modules_stats {
    uint64_t files;
    uint64_t bytes;
    uint64_t opened_total;
    uint64_t failed_total; /* could not be opened or made sense of */
    uint64_t evicted_total;
};
void ltn_modules_stats(const struct ltn_modules *m, struct ltn_modules_stats *ret);

#endif /* LTN_SYMBOL_MODULES_H */
