/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/site.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

static const char *const text_of[] = {
    [LTN_SITE_EMULATED] = "at the entry, emulated by the kernel",
    [LTN_SITE_AFTER_LANDING] = "4 bytes in, behind the landing pad, emulated by the kernel",
    [LTN_SITE_AFTER_COMPARE] = "10 bytes in, behind the driver's state check, emulated",
    [LTN_SITE_LONG_NOP] = "on a long nop, emulated by newer kernels, else single-stepped",
    [LTN_SITE_SINGLE_STEPPED] = "at the entry, single-stepped: dearer, most of all inside a VM",
    [LTN_SITE_REFUSED] = "the kernel does not allow a probe on this instruction",
};

static struct ltn_site site(uint32_t delta_bytes, enum ltn_site_kind kind)
{
    return (struct ltn_site){.delta_bytes = delta_bytes, .kind = kind, .text = text_of[kind]};
}

/* jcc rel8 or rel32. */
static bool is_jcc(const uint8_t *c, size_t n)
{
    return (n >= 2 && c[0] >= 0x70 && c[0] <= 0x7f) ||
           (n >= 6 && c[0] == 0x0f && c[1] >= 0x80 && c[1] <= 0x8f);
}

/* Instructions the kernel's x86 uprobes emulate in every version since 5.15. */
static bool x86_emulated(const uint8_t *c, size_t n)
{
    if (n >= 1 && ((c[0] >= 0x50 && c[0] <= 0x57) || c[0] == 0x90)) {
        return true; /* push reg; nop */
    }
    if (n >= 2 && c[0] == 0x41 && c[1] >= 0x50 && c[1] <= 0x57) {
        return true; /* push r8..r15 */
    }
    if (n >= 2 && c[0] == 0x66 && c[1] == 0x90) {
        return true; /* two-byte nop */
    }
    if (n >= 2 && c[0] == 0xeb) {
        return true; /* jmp rel8 */
    }
    if (n >= 5 && (c[0] == 0xe9 || c[0] == 0xe8)) {
        return true; /* jmp rel32, call rel32 */
    }
    return is_jcc(c, n);
}

/* nop with a memory operand, 3 bytes and longer, with or without the 66 prefix. */
static bool x86_long_nop(const uint8_t *c, size_t n)
{
    if (n >= 1 && c[0] == 0x66) {
        c++;
        n--;
    }
    return n >= 3 && c[0] == 0x0f && c[1] == 0x1f && (c[2] & 0x38) == 0;
}

static struct ltn_site pick_x86(const uint8_t *c, size_t n)
{
    static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
    if (n == 0 || c[0] == 0xcc || c[0] == 0xf4 || (n >= 2 && c[0] == 0x0f && c[1] == 0x0b)) {
        return site(0, LTN_SITE_REFUSED); /* int3, hlt, ud2: no function starts so */
    }
    if (x86_emulated(c, n)) {
        return site(0, LTN_SITE_EMULATED);
    }
    if (x86_long_nop(c, n)) {
        return site(0, LTN_SITE_LONG_NOP);
    }
    if (n >= 4 && memcmp(c, endbr64, 4) == 0) {
        if (x86_emulated(c + 4, n - 4)) {
            return site(4, LTN_SITE_AFTER_LANDING);
        }
        if (x86_long_nop(c + 4, n - 4)) {
            return site(4, LTN_SITE_LONG_NOP);
        }
        return site(0, LTN_SITE_SINGLE_STEPPED);
    }
    /* cmpl $imm32, disp32(%rip); jcc: flags only, stack pointer and arguments untouched. */
    if (n >= 12 && c[0] == 0x81 && c[1] == 0x3d && is_jcc(c + 10, n - 10)) {
        return site(10, LTN_SITE_AFTER_COMPARE);
    }
    return site(0, LTN_SITE_SINGLE_STEPPED);
}

static uint32_t word_at(const uint8_t *c)
{
    return (uint32_t)c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16 | (uint32_t)c[3] << 24;
}

static bool arm64_emulated(uint32_t w)
{
    return (w & 0x7c000000) == 0x14000000 || /* b, bl */
           (w & 0xff000010) == 0x54000000 || /* b.cond */
           (w & 0x7e000000) == 0x34000000 || /* cbz, cbnz */
           (w & 0x7e000000) == 0x36000000 || /* tbz, tbnz */
           (w & 0x1f000000) == 0x10000000 || /* adr, adrp */
           (w & 0xff9ffc1f) == 0xd61f0000;   /* br, blr, ret */
}

/* Instructions the kernel refuses: they cannot run out of line and are not simulated. */
static bool arm64_refused(uint32_t w)
{
    if ((w & 0xfffff01f) == 0xd503201f) {
        unsigned hint = (w >> 5) & 0x7f;
        /* Stepped: nop, those that sign or strip an address, bti. Not those that authenticate. */
        bool sign = hint == 7 || hint == 8 || hint == 10 || (hint >= 24 && hint <= 27);
        bool landing = hint == 32 || hint == 34 || hint == 36 || hint == 38;
        return hint != 0 && !sign && !landing;
    }
    return (w & 0x3f000000) == 0x08000000 || /* exclusives */
           (w & 0x3b000000) == 0x18000000 || /* load literal */
           (w & 0xff000000) == 0xd4000000 || /* svc, hvc, smc, brk, hlt */
           (w & 0xfff00000) == 0xd5100000 || /* msr */
           (w & 0xfffff000) == 0xd69f0000 || /* eret */
           (w & 0xfe9ff800) == 0xd61f0800;   /* authenticated br, blr, ret */
}

static struct ltn_site pick_arm64(const uint8_t *c, size_t n)
{
    if (n < 4) {
        return site(0, LTN_SITE_REFUSED);
    }
    uint32_t first = word_at(c);
    if (arm64_emulated(first)) {
        return site(0, LTN_SITE_EMULATED);
    }
    if (first == 0xd503201f) {
        return site(0, LTN_SITE_LONG_NOP); /* nop: simulated by newer kernels */
    }
    if (arm64_refused(first)) {
        return site(0, LTN_SITE_REFUSED);
    }
    bool bti = (first & 0xffffff3f) == 0xd503241f;
    if (bti && n >= 8 && arm64_emulated(word_at(c + 4))) {
        return site(4, LTN_SITE_AFTER_LANDING);
    }
    return site(0, LTN_SITE_SINGLE_STEPPED);
}

struct ltn_site ltn_site_pick(const uint8_t *code, size_t len, uint16_t machine)
{
    if (machine == EM_X86_64) {
        return pick_x86(code, len);
    }
    if (machine == EM_AARCH64) {
        return pick_arm64(code, len);
    }
    return site(0, LTN_SITE_REFUSED);
}

const char *ltn_site_kind_name(enum ltn_site_kind kind)
{
    switch (kind) {
    case LTN_SITE_EMULATED:
        return "emulated";
    case LTN_SITE_AFTER_LANDING:
        return "after landing pad";
    case LTN_SITE_AFTER_COMPARE:
        return "after compare";
    case LTN_SITE_LONG_NOP:
        return "long nop";
    case LTN_SITE_SINGLE_STEPPED:
        return "single-stepped";
    case LTN_SITE_REFUSED:
        return "refused";
    }
    return "unknown";
}
