/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

/* Longer ones stay as they are: the library takes stack space in proportion. */
#define MANGLED_MAX 2048

struct output {
    char *at;
    size_t left; /* without the NUL */
    jmp_buf full;
};

/* A name of some hundred bytes can stand for gigabytes of text (each part naming the one before
 * twice). The library cannot be told to stop; it holds nothing but stack while it calls, so leaving
 * it by a jump loses nothing. */
static void take(const char *text, size_t n, void *arg)
{
    struct output *o = arg;
    size_t fits = n < o->left ? n : o->left;
    memcpy(o->at, text, fits);
    o->at += fits;
    o->left -= fits;
    *o->at = '\0';
    if (fits < n) {
        longjmp(o->full, 1);
    }
}

static bool demangle(const char *symbol, struct output *o)
{
    if (setjmp(o->full) != 0) {
        return true; /* cut */
    }
    return cplus_demangle_v3_callback(symbol, DMGL_PARAMS | DMGL_ANSI, take, o) != 0;
}

void ltn_demangle(const char *symbol, char *out, size_t size)
{
    if (size == 0) {
        return;
    }
    size_t len = strnlen(symbol, MANGLED_MAX + 1);
    struct output o = {.at = out, .left = size - 1};
    out[0] = '\0';
    if (len <= MANGLED_MAX && strncmp(symbol, "_Z", 2) == 0 && demangle(symbol, &o)) {
        return;
    }
    size_t n = len < size - 1 ? len : size - 1;
    memcpy(out, symbol, n);
    out[n] = '\0';
}
