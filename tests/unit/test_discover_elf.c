/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "base/err.h"
#include "discover/elf.h"

/* Address of a symbol of libc in this process turned into a file offset, by the loader's account.
 */
static uint64_t loaded_offset(const char *name, char path[256])
{
    Dl_info info;
    void *at = dlsym(RTLD_NEXT, name);
    assert_non_null(at);
    assert_true(dladdr(at, &info) != 0);
    (void)snprintf(path, 256, "%s", info.dli_fname);
    /* The first segment of a shared library is at address 0 and offset 0; .text follows with equal
     * distance in libc. The bytes are compared below, so that a wrong guess shows. */
    return (uint64_t)((const char *)at - (const char *)info.dli_fbase);
}

static void test_libc(void **state)
{
    (void)state;
    char path[256];
    uint64_t offset = loaded_offset("getpid", path);
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(path, &e), 0);
    const struct ltn_elf_info *info = ltn_elf_info(e);
    assert_string_equal(info->soname, "libc.so.6");
    assert_int_equal(info->build_id_len, 20);
    assert_true(info->has_dynsym);
    struct ltn_elf_sym syms[] = {{.name = "getpid"},  {.name = "no_such_function"},
                                 {.name = "printf"},  {.name = "getpid"},
                                 {.name = "environ"}, {.name = ""}};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB, syms, 6), 0);
    assert_true(syms[0].found);
    assert_int_equal(syms[0].file_offset, offset);
    assert_int_equal(syms[0].code_len, 16);
    assert_memory_equal(syms[0].code, dlsym(RTLD_NEXT, "getpid"), 16);
    assert_true(syms[0].size_bytes > 0);
    assert_false(syms[1].found);
    assert_true(syms[2].found);
    assert_true(syms[3].found); /* asked for twice */
    assert_int_equal(syms[3].file_offset, offset);
    assert_int_equal(syms[3].alias_of, 1);
    assert_false(syms[4].found); /* data, no function */
    assert_false(syms[5].found);
    ltn_elf_free(e);
}

static void test_versions(void **state)
{
    (void)state;
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(FIXTURES "/libcudart.so.12", &e), 0);
    assert_string_equal(ltn_elf_info(e)->soname, "libcudart.so.12");
    struct ltn_elf_sym syms[] = {{.name = "cudaMemcpyAsync"}, {.name = "cudaLaunchKernel"}};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM, syms, 2), 0);
    ltn_elf_free(e);
    assert_true(syms[0].found);
    assert_true(syms[1].found);
    /* The default version is what a plain look-up at run time finds. */
    void *lib = dlopen(FIXTURES "/libcudart.so.12", RTLD_NOW);
    assert_non_null(lib);
    Dl_info info;
    void *at = dlvsym(lib, "cudaMemcpyAsync", "NEW");
    assert_non_null(at);
    assert_ptr_not_equal(at, dlvsym(lib, "cudaMemcpyAsync", "OLD"));
    assert_true(dladdr(at, &info) != 0);
    assert_int_equal(syms[0].file_offset, (const char *)at - (const char *)info.dli_fbase);
    assert_memory_equal(syms[0].code, at, 4);
    (void)dlclose(lib);
}

static void test_aliases(void **state)
{
    (void)state;
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(FIXTURES "/libnccl.so.2", &e), 0);
    struct ltn_elf_sym syms[] = {
        {.name = "pncclAllReduce"}, {.name = "ncclCommInitRank"}, {.name = "ncclAllReduce"}};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM, syms, 3), 0);
    assert_true(syms[0].found && syms[1].found && syms[2].found);
    assert_false(syms[0].weak);
    assert_true(syms[2].weak);
    assert_int_equal(syms[0].alias_of, 0);
    assert_int_equal(syms[1].alias_of, 0);
    assert_int_equal(syms[2].alias_of, 1);
    assert_int_equal(syms[2].file_offset, syms[0].file_offset);
    ltn_elf_free(e);
}

static void test_local_symbols(void **state)
{
    (void)state;
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(FIXTURES "/discover_child_embeds", &e), 0);
    assert_true(ltn_elf_info(e)->has_symtab);
    struct ltn_elf_sym s = {.name = "cudaLaunchKernel"};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM, &s, 1), 0);
    assert_false(s.found);
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_SYMTAB, &s, 1), 0);
    assert_true(s.found);
    assert_true(s.local);
    assert_true(s.file_offset > 0);
    ltn_elf_free(e);
    /* A program that calls the function imports it: that is no definition. */
    assert_int_equal(ltn_elf_open(FIXTURES "/discover_child", &e), 0);
    s.name = "dlopen";
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB, &s, 1), 0);
    assert_false(s.found);
    ltn_elf_free(e);
}

static int open_bytes(const void *p, size_t n, struct ltn_elf **ret)
{
    char path[] = "/tmp/ltn-elf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    (void)close(fd);
    int rc = ltn_elf_open(path, ret);
    (void)unlink(path);
    return rc;
}

static void test_refusals(void **state)
{
    (void)state;
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open("/no/such/file", &e), -2);
    assert_int_equal(ltn_elf_open("/proc/self/environ/x", &e), -20);
    assert_int_equal(ltn_elf_open("/tmp", &e), LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_elf_open("/dev/null", &e), LTN_ERR_UNSUPPORTED);
    assert_int_equal(open_bytes("", 0, &e), LTN_ERR_MALFORMED);
    assert_int_equal(open_bytes("\177ELF", 4, &e), LTN_ERR_MALFORMED);
    Elf64_Ehdr h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                    .e_type = ET_DYN,
                    .e_machine = EM_X86_64,
                    .e_phentsize = sizeof(Elf64_Phdr),
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_phnum = 1};
    h.e_phoff = UINT64_MAX - 8;
    assert_int_equal(open_bytes(&h, sizeof(h), &e), LTN_ERR_MALFORMED);
    h.e_phoff = 0;
    h.e_phnum = 1000;
    assert_int_equal(open_bytes(&h, sizeof(h), &e), LTN_ERR_COUNT);
    h.e_phnum = 1;
    h.e_machine = EM_386;
    assert_int_equal(open_bytes(&h, sizeof(h), &e), LTN_ERR_UNSUPPORTED);
    h.e_machine = EM_X86_64;
    h.e_shnum = 4;
    h.e_shoff = sizeof(h) - 10;
    assert_int_equal(open_bytes(&h, sizeof(h), &e), LTN_ERR_MALFORMED);
    h.e_shnum = 0xff00;
    assert_int_equal(open_bytes(&h, sizeof(h), &e), LTN_ERR_COUNT);
}

/* A file of which every byte is changed in turn, and every length tried: no crash, no hang. */
static void test_damaged(void **state)
{
    (void)state;
    static char bytes[64 * 1024];
    int fd = open(FIXTURES "/libnccl.so.2", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, bytes, sizeof(bytes));
    (void)close(fd);
    assert_true(n > 1000);
    char path[] = "/tmp/ltn-elf-XXXXXX";
    fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)unlink(path);
    assert_int_equal(write(fd, bytes, (size_t)n), n);
    unsigned opened = 0;
    for (ssize_t i = 0; i < n; i += i < 1024 ? 1 : 7) {
        char bad = (char)(bytes[i] ^ 0xff);
        assert_int_equal(pwrite(fd, &bad, 1, i), 1);
        struct ltn_elf *e;
        if (ltn_elf_open_fd(fd, &e) == 0) {
            struct ltn_elf_sym s[] = {{.name = "ncclAllReduce"}, {.name = "pncclAllReduce"}};
            opened += ltn_elf_lookup(e, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB, s, 2) == 0;
            ltn_elf_free(e);
        }
        assert_int_equal(pwrite(fd, &bytes[i], 1, i), 1);
    }
    assert_true(opened > 100);
    for (ssize_t len = n; len >= 0; len -= 13) {
        assert_int_equal(ftruncate(fd, len), 0);
        struct ltn_elf *e;
        if (ltn_elf_open_fd(fd, &e) == 0) {
            struct ltn_elf_sym s = {.name = "ncclAllReduce"};
            int rc = ltn_elf_lookup(e, LTN_ELF_DYNSYM, &s, 1);
            assert_true(rc == 0 || rc == LTN_ERR_MALFORMED);
            ltn_elf_free(e);
        }
    }
    (void)close(fd);
}

/* Cut short between opening and looking up. */
static void test_truncated_while_open(void **state)
{
    (void)state;
    char path[] = "/tmp/ltn-elf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    copy_file(FIXTURES "/libnccl.so.2", path);
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(path, &e), 0);
    assert_int_equal(truncate(path, 100), 0);
    struct ltn_elf_sym s = {.name = "ncclAllReduce"};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM, &s, 1), LTN_ERR_MALFORMED);
    ltn_elf_free(e);
    (void)unlink(path);
}

/* A file whose string table is read in several pieces. */
struct big {
    Elf64_Ehdr h;
    Elf64_Phdr p;
    Elf64_Shdr s[3];
    uint8_t code[4096];
};

#define PIECE       (1u << 20)
#define BIG_STRINGS (2u * PIECE + 100)
#define BIG_NAMES   5

static void big_headers(struct big *b, size_t symbols)
{
    *b = (struct big){
        .h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
              .e_type = ET_DYN,
              .e_machine = EM_X86_64,
              .e_phoff = offsetof(struct big, p),
              .e_shoff = offsetof(struct big, s),
              .e_phentsize = sizeof(Elf64_Phdr),
              .e_phnum = 1,
              .e_shentsize = sizeof(Elf64_Shdr),
              .e_shnum = 3},
        .p = {.p_type = PT_LOAD,
              .p_flags = PF_R | PF_X,
              .p_filesz = sizeof(*b),
              .p_memsz = sizeof(*b)},
    };
    b->s[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                           .sh_offset = sizeof(*b),
                           .sh_size = symbols * sizeof(Elf64_Sym),
                           .sh_entsize = sizeof(Elf64_Sym),
                           .sh_link = 2};
    b->s[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                           .sh_offset = sizeof(*b) + symbols * sizeof(Elf64_Sym),
                           .sh_size = BIG_STRINGS};
}

/* Puts the names where the test wants them: two across the places where the table is cut, one that
 * is the end of another, one of a single letter, one without an end. */
static void fill_strings(char *strings, size_t shift, uint32_t at[BIG_NAMES])
{
    memset(strings, 'x', BIG_STRINGS);
    for (size_t i = 17; i < BIG_STRINGS; i += 23) {
        strings[i] = '\0';
    }
    at[0] = (uint32_t)(PIECE - shift);
    at[1] = (uint32_t)(2 * PIECE - shift);
    at[2] = at[0] + 6;
    at[3] = 0;
    at[4] = BIG_STRINGS - 6;
    memcpy(strings + at[0], "wantedFunctionA", 16);
    memcpy(strings + at[1], "wantedFunctionB", 16);
    memcpy(strings + at[3], "q", 2);
    memcpy(strings + at[4] - 1, "\0noEnd!", 7);
}

static void check_cut(char *strings, size_t shift)
{
    static struct big b;
    Elf64_Sym symbols[BIG_NAMES];
    uint32_t at[BIG_NAMES];
    struct ltn_elf *e;
    struct ltn_elf_sym want[BIG_NAMES] = {{.name = "wantedFunctionA"},
                                          {.name = "wantedFunctionB"},
                                          {.name = "FunctionA"},
                                          {.name = "q"},
                                          {.name = "noEnd!"}};
    fill_strings(strings, shift, at);
    for (size_t i = 0; i < BIG_NAMES; i++) {
        symbols[i] = (Elf64_Sym){.st_name = at[i],
                                 .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
                                 .st_shndx = 1,
                                 .st_value = offsetof(struct big, code) + 16 * i};
    }
    big_headers(&b, BIG_NAMES);
    int fd = memfd_create("big", MFD_CLOEXEC);
    assert_int_equal(write(fd, &b, sizeof(b)), sizeof(b));
    assert_int_equal(write(fd, symbols, sizeof(symbols)), sizeof(symbols));
    assert_int_equal(write(fd, strings, BIG_STRINGS), BIG_STRINGS);
    assert_int_equal(ltn_elf_open_fd(fd, &e), 0);
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_SYMTAB, want, BIG_NAMES), 0);
    for (size_t i = 0; i < BIG_NAMES - 1; i++) {
        assert_true(want[i].found);
        assert_int_equal(want[i].file_offset, offsetof(struct big, code) + 16 * i);
    }
    assert_false(want[BIG_NAMES - 1].found);
    ltn_elf_free(e);
    (void)close(fd);
}

static void test_names_in_a_large_table(void **state)
{
    (void)state;
    char *strings = malloc(BIG_STRINGS);
    for (size_t shift = 0; shift <= 17; shift++) {
        check_cut(strings, shift);
    }
    free(strings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libc),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_local_symbols),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_truncated_while_open),
        cmocka_unit_test(test_names_in_a_large_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
