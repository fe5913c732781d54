/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <elf.h>

#include "discover/elf.h"
#include "probe/site.h"

struct row {
    const char *what;
    uint8_t code[16];
    size_t len;
    uint32_t delta;
    enum ltn_site_kind kind;
};

static void check_rows(const struct row *rows, size_t count, uint16_t machine)
{
    for (size_t i = 0; i < count; i++) {
        struct ltn_site s = ltn_site_pick(rows[i].code, rows[i].len, machine);
        if (s.delta_bytes != rows[i].delta || s.kind != rows[i].kind) {
            fail_msg("%s: +%u %s", rows[i].what, s.delta_bytes, ltn_site_kind_name(s.kind));
        }
        assert_true(strlen(s.text) > 0);
    }
}

static void test_x86(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"push rbp", {0x55, 0x48, 0x89, 0xe5}, 16, 0, LTN_SITE_EMULATED},
        {"push r15", {0x41, 0x57, 0x41, 0x56}, 16, 0, LTN_SITE_EMULATED},
        {"rex.b that is no push", {0x41, 0x89, 0xc0}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"rex.w push", {0x48, 0x55}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"nop", {0x90}, 1, 0, LTN_SITE_EMULATED},
        {"two-byte nop", {0x66, 0x90}, 2, 0, LTN_SITE_EMULATED},
        {"nop5", {0x0f, 0x1f, 0x44, 0, 0, 0x55}, 16, 0, LTN_SITE_LONG_NOP},
        {"jmp rel8", {0xeb, 0x10}, 16, 0, LTN_SITE_EMULATED},
        {"jmp rel32", {0xe9, 1, 2, 3, 4}, 16, 0, LTN_SITE_EMULATED},
        {"jmp rel32 cut", {0xe9, 1, 2, 3}, 4, 0, LTN_SITE_SINGLE_STEPPED},
        {"call rel32", {0xe8, 1, 2, 3, 4}, 16, 0, LTN_SITE_EMULATED},
        {"je rel8", {0x74, 0x0c}, 16, 0, LTN_SITE_EMULATED},
        {"jne rel32", {0x0f, 0x85, 1, 2, 3, 4}, 16, 0, LTN_SITE_EMULATED},
        {"endbr64 push", {0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 16, 4, LTN_SITE_AFTER_LANDING},
        {"endbr64 push r12", {0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54}, 16, 4, LTN_SITE_AFTER_LANDING},
        {"endbr64 sub rsp",
         {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 8},
         16,
         0,
         LTN_SITE_SINGLE_STEPPED},
        {"endbr64 and nothing", {0xf3, 0x0f, 0x1e, 0xfa}, 4, 0, LTN_SITE_SINGLE_STEPPED},
        {"endbr32 push", {0xf3, 0x0f, 0x1e, 0xfb, 0x55}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"sub rsp then push", {0x48, 0x83, 0xec, 8, 0x55}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"libcuda thunk",
         {0x81, 0x3d, 1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0x74, 0x0c, 0xff, 0x25, 0, 0},
         16,
         10,
         LTN_SITE_AFTER_COMPARE},
        {"libcuda thunk, near jump",
         {0x81, 0x3d, 1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0x0f, 0x84, 0x0c, 0, 0, 0},
         16,
         10,
         LTN_SITE_AFTER_COMPARE},
        {"compare and no jcc",
         {0x81, 0x3d, 1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0x55, 0x48, 0x89, 0xe5, 0, 0},
         16,
         0,
         LTN_SITE_SINGLE_STEPPED},
        {"other compare",
         {0x81, 0x3c, 0x25, 2, 3, 4, 5, 0x56, 0x34, 0x12, 0x74, 0x0c},
         16,
         0,
         LTN_SITE_SINGLE_STEPPED},
        {"compare cut",
         {0x81, 0x3d, 1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0x74},
         11,
         0,
         LTN_SITE_SINGLE_STEPPED},
        {"xor eax; ret", {0x31, 0xc0, 0xc3}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"int3", {0xcc}, 16, 0, LTN_SITE_REFUSED},
        {"nothing", {0}, 0, 0, LTN_SITE_REFUSED},
    };
    check_rows(rows, sizeof(rows) / sizeof(rows[0]), EM_X86_64);
}

#define INSN(w) ((w)&0xff), ((w) >> 8 & 0xff), ((w) >> 16 & 0xff), ((uint32_t)(w) >> 24)

static void test_arm64(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"stp x29,x30,[sp,#-16]!", {INSN(0xa9bf7bfd)}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"sub sp,sp,#32", {INSN(0xd10083ff)}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"adrp x16", {INSN(0xb0000010)}, 16, 0, LTN_SITE_EMULATED},
        {"b", {INSN(0x14000004)}, 16, 0, LTN_SITE_EMULATED},
        {"bl", {INSN(0x94000004)}, 16, 0, LTN_SITE_EMULATED},
        {"b.eq", {INSN(0x54000040)}, 16, 0, LTN_SITE_EMULATED},
        {"cbz w0", {INSN(0x34000040)}, 16, 0, LTN_SITE_EMULATED},
        {"cbnz x0", {INSN(0xb5000040)}, 16, 0, LTN_SITE_EMULATED},
        {"tbz", {INSN(0x36000040)}, 16, 0, LTN_SITE_EMULATED},
        {"br x16", {INSN(0xd61f0200)}, 16, 0, LTN_SITE_EMULATED},
        {"ret", {INSN(0xd65f03c0)}, 16, 0, LTN_SITE_EMULATED},
        {"retaa", {INSN(0xd65f0bff)}, 16, 0, LTN_SITE_REFUSED},
        {"braa x0,x1", {INSN(0xd71f0801)}, 16, 0, LTN_SITE_REFUSED},
        {"svc", {INSN(0xd4000001)}, 16, 0, LTN_SITE_REFUSED},
        {"ldxr", {INSN(0xc85f7c00)}, 16, 0, LTN_SITE_REFUSED},
        {"ldr literal", {INSN(0x58000040)}, 16, 0, LTN_SITE_REFUSED},
        {"paciasp then b", {INSN(0xd503233f), INSN(0x14000004)}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"autiasp", {INSN(0xd50323bf)}, 16, 0, LTN_SITE_REFUSED},
        {"wfi", {INSN(0xd503207f)}, 16, 0, LTN_SITE_REFUSED},
        {"nop", {INSN(0xd503201f)}, 16, 0, LTN_SITE_LONG_NOP},
        {"bti c, adrp", {INSN(0xd503245f), INSN(0x90000010)}, 16, 4, LTN_SITE_AFTER_LANDING},
        {"bti c, stp", {INSN(0xd503245f), INSN(0xa9bf7bfd)}, 16, 0, LTN_SITE_SINGLE_STEPPED},
        {"bti c at the end", {INSN(0xd503245f)}, 4, 0, LTN_SITE_SINGLE_STEPPED},
        {"half a word", {0x1f, 0x20}, 2, 0, LTN_SITE_REFUSED},
    };
    check_rows(rows, sizeof(rows) / sizeof(rows[0]), EM_AARCH64);
    struct ltn_site s = ltn_site_pick(rows[0].code, 16, EM_386);
    assert_int_equal(s.kind, LTN_SITE_REFUSED);
}

/* The same through a real file. */
static void test_real_prologues(void **state)
{
    (void)state;
#ifdef __x86_64__
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(FIXTURES "/libcuda.so.1", &e), 0);
    struct ltn_elf_sym syms[] = {
        {.name = "cuLaunchKernel"}, {.name = "cuMemAlloc_v2"}, {.name = "cuCtxSynchronize"}};
    static const uint32_t deltas[] = {10, 0, 4};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM, syms, 3), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_true(syms[i].found);
        struct ltn_site s = ltn_site_pick(syms[i].code, syms[i].code_len, EM_X86_64);
        assert_int_equal(s.delta_bytes, deltas[i]);
        assert_int_not_equal(s.kind, LTN_SITE_SINGLE_STEPPED);
    }
    ltn_elf_free(e);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_x86),
        cmocka_unit_test(test_arm64),
        cmocka_unit_test(test_real_prologues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
