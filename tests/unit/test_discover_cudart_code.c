/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <glob.h>

#include "base/err.h"
#include "discover/cudart_code.h"
#include "probe/ops.h"

#define NAMES_MAX 512

static unsigned find(const char *path, struct ltn_elf_sym *syms, size_t count, int *ret_rc)
{
    struct ltn_elf *elf;
    unsigned found = 0;
    assert_int_equal(ltn_elf_open(path, &elf), 0);
    *ret_rc = ltn_cudart_find_code(elf, syms, count, &found);
    ltn_elf_free(elf);
    return found;
}

/* What the exported names of the fixture say, against what its code says. */
static void test_marks(void **state)
{
    (void)state;
    struct ltn_elf_sym want[] = {
        {.name = "fixture_malloc"}, {.name = "fixture_launch"}, {.name = "fixture_sync"}};
    struct ltn_elf_sym got[] = {
        {.name = "cudaMalloc"}, {.name = "cudaLaunchKernel"}, {.name = "cudaStreamSynchronize"},
        {.name = "cudaFree"},   {.name = "cudaMemcpy"},       {.name = "no_such_function"}};
    struct ltn_elf *elf;
    int rc;
    assert_int_equal(ltn_elf_open(FIXTURES "/stripped.so", &elf), 0);
    assert_false(ltn_elf_info(elf)->has_symtab);
    assert_int_equal(ltn_elf_lookup(elf, LTN_ELF_DYNSYM, want, 3), 0);
    ltn_elf_free(elf);
    assert_int_equal(find(FIXTURES "/stripped.so", got, 6, &rc), 73);
    assert_int_equal(rc, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_true(want[i].found && got[i].found);
        assert_int_equal(got[i].file_offset, want[i].file_offset);
        assert_int_equal(got[i].code_len, LTN_ELF_CODE_BYTES);
        assert_memory_equal(got[i].code, want[i].code, LTN_ELF_CODE_BYTES);
    }
    for (size_t i = 3; i < 6; i++) {
        assert_false(got[i].found);
    }
}

/* A name that the symbol tables gave already stays as they say. */
static void test_symbols_win(void **state)
{
    (void)state;
    struct ltn_elf_sym s = {.name = "cudaMalloc", .found = true, .file_offset = 7};
    int rc;
    (void)find(FIXTURES "/stripped.so", &s, 1, &rc);
    assert_int_equal(rc, 0);
    assert_int_equal(s.file_offset, 7);
}

/* Programs without a runtime give nothing at all. */
static void test_foreign_code(void **state)
{
    (void)state;
    static const char *const paths[] = {"/proc/self/exe", "/bin/sh", FIXTURES "/libcudart.so.12"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(paths); i++) {
        struct ltn_elf_sym s = {.name = "cudaMalloc"};
        int rc;
        assert_true(find(paths[i], &s, 1, &rc) < 3);
        assert_false(s.found);
    }
}

/* The real runtime, where one is installed: its code says of each function what its symbols say. */
static void test_real_library(void **state)
{
    (void)state;
    glob_t g = {0};
    if (glob("/usr/local/cuda*/lib64/libcudart.so.1[1-9]*", 0, NULL, &g) != 0) {
        print_message("SKIPPED: no CUDA toolkit in /usr/local\n");
        skip();
    }
    size_t all;
    const struct ltn_op_symbol *table = ltn_op_symbols(&all);
    for (size_t f = 0; f < g.gl_pathc; f++) {
        static struct ltn_elf_sym by_name[NAMES_MAX];
        static struct ltn_elf_sym by_code[NAMES_MAX];
        size_t n = 0;
        for (size_t i = 0; i < all && n < NAMES_MAX; i++) {
            if (table[i].library == LTN_OP_LIB_CUDART) {
                by_name[n] = (struct ltn_elf_sym){.name = table[i].symbol};
                by_code[n++] = (struct ltn_elf_sym){.name = table[i].symbol};
            }
        }
        struct ltn_elf *elf;
        int rc;
        assert_int_equal(ltn_elf_open(g.gl_pathv[f], &elf), 0);
        assert_int_equal(ltn_elf_lookup(elf, LTN_ELF_DYNSYM, by_name, n), 0);
        ltn_elf_free(elf);
        unsigned found = find(g.gl_pathv[f], by_code, n, &rc);
        assert_int_equal(rc, 0);
        size_t same = 0;
        for (size_t i = 0; i < n; i++) {
            if (by_code[i].found) {
                assert_true(by_name[i].found);
                assert_int_equal(by_code[i].file_offset, by_name[i].file_offset);
                same++;
            } else if (by_name[i].found) {
                print_message("%s is not told by its code\n", by_name[i].name);
            }
        }
        print_message("%s: %u functions told by their code, %zu of %zu traced ones\n",
                      g.gl_pathv[f], found, same, n);
        assert_true(found >= 370 && same > 0);
    }
    globfree(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_symbols_win),
        cmocka_unit_test(test_foreign_code),
        cmocka_unit_test(test_real_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
