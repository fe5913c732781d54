/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where to put the breakpoint of a function: at its first instruction or a few bytes on, where the
 * kernel emulates the instruction instead of single-stepping it (16 times dearer inside a virtual
 * machine). Never behind a push or anything else that moves the stack pointer or the link register:
 * a return probe there would break the program. Pure, thread-safe.
 */
#ifndef LTN_PROBE_SITE_H
#define LTN_PROBE_SITE_H

#include <stddef.h>
#include <stdint.h>

enum ltn_site_kind {
    LTN_SITE_EMULATED,       /* +0, emulated */
    LTN_SITE_AFTER_LANDING,  /* +4, behind endbr64 or bti, emulated */
    LTN_SITE_AFTER_COMPARE,  /* +10, behind the 10-byte compare of a libcuda thunk, emulated */
    LTN_SITE_LONG_NOP,       /* +0 or +4, emulated by newer kernels only */
    LTN_SITE_SINGLE_STEPPED, /* +0, works but dear */
    LTN_SITE_REFUSED,        /* the kernel does not allow a probe here, or the bytes are too few */
};

struct ltn_site {
    uint32_t delta_bytes; /* add to the function's file offset */
    enum ltn_site_kind kind;
    const char *text; /* for `check`; static storage */
};

/* Decides by the first bytes of the function's code as they stand in the file (16 wanted, fewer at
 * the end of a segment) and the ELF machine (EM_X86_64, EM_AARCH64). */
struct ltn_site ltn_site_pick(const uint8_t *code, size_t len, uint16_t machine);

/* "emulated", "after landing pad", ...; static storage. */
const char *ltn_site_kind_name(enum ltn_site_kind kind);

#endif /* LTN_PROBE_SITE_H */
