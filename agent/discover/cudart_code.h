/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of a CUDA runtime that was linked into a program whose symbols were stripped. Each
 * public function asks at its beginning whether a profiler wants to hear of it, by a word whose
 * place is the function's public callback number, and later hands that number on; where functions
 * begin is told by the unwind table, which stripping leaves. x86-64 only. The file is hostile: all
 * reads and counts have ceilings. One thread at a time per object.
 */
#ifndef LTN_DISCOVER_CUDART_CODE_H
#define LTN_DISCOVER_CUDART_CODE_H

#include <stddef.h>

#include "discover/elf.h"

/* Fills the entries whose name is a runtime function that was found (found, file_offset, code); the
 * others stay as they are. *ret_found: how many public functions of the runtime there are, of
 * whatever name; few means that there is none. 0; LTN_ERR_UNSUPPORTED (machine, or no unwind
 * table); LTN_ERR_MALFORMED; LTN_ERR_COUNT; LTN_ERR_TOO_LARGE (more code than is looked through);
 * -ENOMEM; -errno. */
int ltn_cudart_find_code(struct ltn_elf *elf, struct ltn_elf_sym *syms, size_t count,
                         unsigned *ret_found) ltn_must_check;

/* At least so many public functions make a runtime: the smallest program carries hundreds, and
 * foreign code gives none. */
#define LTN_CUDART_FUNCTIONS_MIN 50

#endif /* LTN_DISCOVER_CUDART_CODE_H */
