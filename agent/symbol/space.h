/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code a process has mapped where, read from /proc/PID/maps and remembered for some time. One
 * thread at a time.
 */
#ifndef LTN_SYMBOL_SPACE_H
#define LTN_SYMBOL_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define LTN_MODULE_KEY_BYTES 40

/* What a mapped file is: its build id, or device, inode, size and time of change when it has none.
 * len 0: not known yet. */
struct ltn_module_key {
    uint8_t len;
    bool is_build_id;
    uint8_t bytes[LTN_MODULE_KEY_BYTES];
};

/* A mapping with the right to execute. */
struct ltn_mapping {
    uint64_t start;
    uint64_t end;
    uint64_t pgoff_bytes;
    uint64_t ino;
    uint32_t dev_major;
    uint32_t dev_minor;
    bool deleted;
    const char *path;          /* raw, "" = anonymous; owned by the space */
    struct ltn_module_key key; /* filled in when the file was opened */
    int open_error;            /* it could not be opened, and will not be tried again */
};

/* A program that a process runs: its number, start (as in struct ltn_proc), execs up to now, and
 * where code and stack begin, as in struct ltn_event_stack. */
struct ltn_program {
    uint32_t pid;
    uint32_t execs;
    uint64_t proc_start_ns;
    uint64_t code_start;
    uint64_t stack_start;
};

struct ltn_spaces;

/* Keeps max_processes address spaces. NULL when memory is out. */
struct ltn_spaces *ltn_spaces_new(size_t max_processes) ltn_must_check;
void ltn_spaces_free(struct ltn_spaces *s);

/* The mapping that held an address of a program at a moment not long ago (event_ns,
 * CLOCK_MONOTONIC). What is remembered answers unless it is from more than a second before, or from
 * before and without the address: libraries come and go. Of a process that has ended what is
 * remembered is used. 0, LTN_ERR_NOT_FOUND (no code there), -ESRCH (gone and never seen), -errno.
 * The mapping is valid until the next call. */
int ltn_spaces_find(struct ltn_spaces *s, const struct ltn_program *program, uint64_t event_ns,
                    uint64_t address, struct ltn_mapping **ret) ltn_must_check;

/* Counts one more stack of a program; false when it has had as many as one may have. */
bool ltn_spaces_count_stack(struct ltn_spaces *s, const struct ltn_program *program);

#endif /* LTN_SYMBOL_SPACE_H */
