/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each version of CPython keeps what an observer needs: the offsets are stable inside a minor
 * version and different between any two. Pure, thread-safe.
 */
#ifndef LTN_SYMBOL_PYTHON_LAYOUT_H
#define LTN_SYMBOL_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "bpf/python_event.h"

/* Bytes at _PyRuntime that ltn_python_layout_check looks at (3.13 and later publish offsets there).
 */
#define LTN_PYTHON_DEBUG_BYTES 1024

/* Number by which layouts and line tables are told apart: PY_VERSION_HEX >> 16, 0x30b for 3.11;
 * free-threaded builds have LTN_PYTHON_FREE_THREADED added. */
#define LTN_PYTHON_VERSION(major, minor) ((uint32_t)(major) << 8 | (uint32_t)(minor))
#define LTN_PYTHON_FREE_THREADED         0x10000u

/* Fills in everything of *ret that is the same in all processes of the version. 0, or
 * LTN_ERR_UNSUPPORTED. */
int ltn_python_layout_get(uint32_t version, struct ltn_python_process *ret) ltn_must_check;

/* Version that the first bytes of _PyRuntime tell (3.13 and later), or 0. */
uint32_t ltn_python_layout_version(const uint8_t *runtime, size_t size);

/* Replaces what the interpreter itself publishes at _PyRuntime (3.13 and later): patch releases may
 * differ. True when it agreed with the built-in table. LTN_ERR_UNSUPPORTED when what it says cannot
 * be used. */
int ltn_python_layout_adopt(const uint8_t *runtime, size_t size, struct ltn_python_process *p,
                            bool *ret_agreed) ltn_must_check;

#endif /* LTN_SYMBOL_PYTHON_LAYOUT_H */
