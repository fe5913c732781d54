/* SPDX-License-Identifier: Apache-2.0 */
#include "cmocka_all.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "symbol/table.h"

/* A file made by hand: code at 0x1000 of the file and of memory, 0x1000 bytes of it. */
enum { CODE_AT = 0x1000, CODE_BYTES = 0x1000, SYMBOLS = 9 };

struct image {
    Elf64_Ehdr header;
    Elf64_Phdr load;
    Elf64_Shdr sections[3];
    Elf64_Sym symbols[SYMBOLS];
    char strings[128];
};

static uint32_t add_name(struct image *f, uint32_t *used, const char *name)
{
    uint32_t at = *used;
    memcpy(f->strings + at, name, strlen(name) + 1);
    *used += (uint32_t)strlen(name) + 1;
    return at;
}

static Elf64_Sym symbol(uint32_t name, unsigned bind, unsigned type, uint64_t at, uint64_t size)
{
    return (Elf64_Sym){.st_name = name,
                       .st_info = (unsigned char)ELF64_ST_INFO(bind, type),
                       .st_shndx = 1,
                       .st_value = at,
                       .st_size = size};
}

static void make_image(struct image *f)
{
    uint32_t used = 1;
    *f = (struct image){
        .header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, 1},
                   .e_type = ET_DYN,
                   .e_machine = EM_X86_64,
                   .e_phoff = offsetof(struct image, load),
                   .e_shoff = offsetof(struct image, sections),
                   .e_phentsize = sizeof(Elf64_Phdr),
                   .e_phnum = 1,
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = 3},
        .load = {.p_type = PT_LOAD,
                 .p_flags = PF_R | PF_X,
                 .p_offset = CODE_AT,
                 .p_vaddr = CODE_AT,
                 .p_filesz = CODE_BYTES},
    };
    f->sections[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                  .sh_offset = offsetof(struct image, symbols),
                                  .sh_size = sizeof(f->symbols),
                                  .sh_entsize = sizeof(Elf64_Sym),
                                  .sh_link = 2};
    f->sections[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                  .sh_offset = offsetof(struct image, strings),
                                  .sh_size = sizeof(f->strings)};
    Elf64_Sym *s = f->symbols;
    s[0] = symbol(add_name(f, &used, "second"), STB_GLOBAL, STT_FUNC, 0x1100, 0x20);
    s[1] = symbol(add_name(f, &used, "hidden"), STB_LOCAL, STT_FUNC, 0x1000, 0x80);
    s[2] = symbol(add_name(f, &used, "first@@V_2"), STB_GLOBAL, STT_FUNC, 0x1000, 0x40);
    s[3] = symbol(add_name(f, &used, "_first"), STB_WEAK, STT_FUNC, 0x1000, 0x40);
    s[4] = symbol(add_name(f, &used, "endless"), STB_LOCAL, STT_FUNC, 0x1200, 0);
    s[5] = symbol(add_name(f, &used, "data"), STB_GLOBAL, STT_OBJECT, 0x1210, 8);
    s[6] = symbol(add_name(f, &used, "outside"), STB_GLOBAL, STT_FUNC, 0x9000, 8);
    s[7] = symbol(add_name(f, &used, "_ZN3app5epochEi"), STB_GLOBAL, STT_FUNC, 0x1300, UINT64_MAX);
    s[8] = symbol(5000, STB_GLOBAL, STT_FUNC, 0x1400, 0x10); /* no such place in the strings */
}

static int to_file(const void *p, size_t n)
{
    int fd = memfd_create("elf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    return fd;
}

static int open_image(const struct image *f, size_t bytes, struct ltn_symtab **ret)
{
    int fd = to_file(f, bytes);
    if (bytes == sizeof(*f)) {
        assert_int_equal(ftruncate(fd, CODE_AT + CODE_BYTES), 0);
    }
    return ltn_symtab_open(fd, ret);
}

static void expect(struct ltn_symtab *t, uint64_t at, const char *want)
{
    char name[64] = "";
    int rc = ltn_symtab_name(t, at, name, sizeof(name));
    if (want == NULL) {
        assert_true(rc < 0);
    } else {
        assert_int_equal(rc, 0);
        assert_string_equal(name, want);
    }
}

static void test_places(void **state)
{
    (void)state;
    struct image f;
    struct ltn_symtab *t;
    make_image(&f);
    assert_int_equal(open_image(&f, sizeof(f), &t), 0);
    expect(t, 0, NULL);
    expect(t, 0xfff, NULL);
    expect(t, 0x1000, "first"); /* exported before local, without its version */
    expect(t, 0x107f, "first"); /* the largest of the sizes said */
    expect(t, 0x1080, NULL);    /* between two functions is nobody's */
    expect(t, 0x10ff, NULL);
    expect(t, 0x1100, "second");
    expect(t, 0x111f, "second");
    expect(t, 0x1120, NULL);
    expect(t, 0x1210, "endless"); /* no size: up to the next function; data is none */
    expect(t, 0x12ff, "endless");
    expect(t, 0x1300, "app::epoch(int)");
    expect(t, 0x13ff, "app::epoch(int)");
    expect(t, 0x1400, NULL); /* its name lies outside */
    expect(t, UINT64_MAX, NULL);
    assert_true(ltn_symtab_bytes(t) >= 5 * 16);
    ltn_symtab_free(t);
    ltn_symtab_free(NULL);
}

/* Cut anywhere, and with any one byte of its headers spoiled: an answer or an error. */
static void test_hostile(void **state)
{
    (void)state;
    struct image f;
    struct ltn_symtab *t;
    char name[64];
    size_t answers = 0;
    make_image(&f);
    for (size_t n = 0; n < sizeof(f); n++) {
        if (open_image(&f, n, &t) == 0) {
            answers += ltn_symtab_name(t, 0x1000, name, sizeof(name)) == 0;
            ltn_symtab_free(t);
        }
    }
    for (size_t i = 0; i < offsetof(struct image, strings); i++) {
        static const unsigned char values[] = {0, 0x7f, 0x80, 0xff};
        for (size_t k = 0; k < sizeof(values); k++) {
            make_image(&f);
            ((unsigned char *)&f)[i] = values[k];
            if (open_image(&f, sizeof(f), &t) != 0) {
                continue;
            }
            for (uint64_t at = 0; at < 0x2000; at += 0x80) {
                answers += ltn_symtab_name(t, at, name, sizeof(name)) == 0;
            }
            ltn_symtab_free(t);
        }
    }
    assert_true(answers > 0);
    assert_true(ltn_symtab_open(to_file("", 0), &t) < 0);
    assert_true(ltn_symtab_open(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &t) < 0);
}

/* The file that shrinks while it is open: an error, not a fault. */
static void test_shrinking(void **state)
{
    (void)state;
    struct image f;
    struct ltn_symtab *t;
    char name[64];
    make_image(&f);
    int fd = to_file(&f, sizeof(f));
    int again = dup(fd);
    assert_int_equal(ftruncate(fd, CODE_AT + CODE_BYTES), 0);
    assert_int_equal(ltn_symtab_open(fd, &t), 0);
    assert_int_equal(ftruncate(again, 64), 0);
    assert_true(ltn_symtab_name(t, 0x1000, name, sizeof(name)) < 0);
    ltn_symtab_free(t);
    (void)close(again);
}

/* Every function that this program's own C library exports is found under one of its names. */
static void test_libc(void **state)
{
    (void)state;
    Dl_info info;
    struct ltn_symtab *t;
    char name[256];
    void *at = dlsym(RTLD_NEXT, "getpid");
    assert_true(dladdr(at, &info) != 0);
    assert_int_equal(ltn_symtab_open(open(info.dli_fname, O_RDONLY | O_CLOEXEC), &t), 0);
    uint64_t offset = (uint64_t)((char *)at - (char *)info.dli_fbase);
    assert_int_equal(ltn_symtab_name(t, offset + 1, name, sizeof(name)), 0);
    assert_string_equal(name, "getpid");
    assert_int_equal(ltn_symtab_info(t)->build_id_len, 20);
    ltn_symtab_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_shrinking),
        cmocka_unit_test(test_libc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
