/* SPDX-License-Identifier: Apache-2.0 */
/* C++ names as people write them. */
#ifndef LTN_SYMBOL_DEMANGLE_H
#define LTN_SYMBOL_DEMANGLE_H

#include <stddef.h>

/*
 * Writes the readable form of a symbol to out (size bytes, ended by NUL, cut to fit); of a name
 * that is not a mangled one, the name itself. The name comes from a traced program: input and
 * output are bounded, so a short name that would unfold into gigabytes costs no more than any
 * other. One thread at a time.
 */
void ltn_demangle(const char *symbol, char *out, size_t size);

#endif /* LTN_SYMBOL_DEMANGLE_H */
