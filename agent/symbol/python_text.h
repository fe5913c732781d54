/* SPDX-License-Identifier: Apache-2.0 */
/* Strings as CPython keeps them, made into UTF-8. Pure, thread-safe. */
#ifndef LTN_SYMBOL_PYTHON_TEXT_H
#define LTN_SYMBOL_PYTHON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Writes n bytes of code points of `width` bytes each (1: Latin-1, 2, 4; little-endian) as clean
 * UTF-8 into out (size bytes, terminated): control characters, surrogates and what is no code point
 * become '?'. What does not fit is cut between characters. Returns the length. */
size_t ltn_python_text(char *out, size_t size, const void *data, size_t n, unsigned width);

#endif /* LTN_SYMBOL_PYTHON_TEXT_H */
