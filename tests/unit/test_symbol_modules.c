/* SPDX-License-Identifier: Apache-2.0 */
/* Symbol tables of files: found in more than one way, shared, bounded. */
#include "cmocka_all.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbol/modules.h"

/* A mapping of a library, at addresses where this process has none: only the path leads to it. */
static struct ltn_mapping by_path(const char *symbol)
{
    static char paths[2][256];
    static int next;
    Dl_info info;
    struct stat st;
    char *path = paths[next++ % 2];
    assert_true(dladdr(dlsym(RTLD_DEFAULT, symbol), &info) != 0);
    (void)snprintf(path, 256, "%s", info.dli_fname);
    assert_int_equal(stat(path, &st), 0);
    return (struct ltn_mapping){.start = 0x1000, .end = 0x2000, .ino = st.st_ino, .path = path};
}

static void test_by_path(void **state)
{
    (void)state;
    struct ltn_modules *m = ltn_modules_new(1 << 20, 4);
    struct ltn_modules_stats s;
    struct ltn_mapping libc = by_path("getpid");
    struct ltn_symtab *t = ltn_modules_of(m, (uint32_t)getpid(), &libc);
    assert_non_null(t);
    assert_true(libc.key.is_build_id);
    assert_int_equal(libc.key.len, 20);
    /* The same file mapped elsewhere, and asked for again, is opened once. */
    struct ltn_mapping again = by_path("getpid");
    assert_ptr_equal(ltn_modules_of(m, (uint32_t)getpid(), &again), t);
    assert_ptr_equal(ltn_modules_of(m, (uint32_t)getpid(), &libc), t);
    /* What stands at the path now is not what was mapped. */
    struct ltn_mapping other = by_path("getpid");
    other.ino += 1;
    assert_null(ltn_modules_of(m, (uint32_t)getpid(), &other));
    assert_true(other.open_error < 0);
    struct ltn_mapping deleted = by_path("getpid");
    deleted.deleted = true;
    assert_null(ltn_modules_of(m, (uint32_t)getpid(), &deleted));
    struct ltn_mapping gone = by_path("getpid");
    assert_null(ltn_modules_of(m, 0x7ffffff0, &gone));
    ltn_modules_stats(m, &s);
    assert_int_equal(s.opened_total, 1);
    assert_int_equal(s.failed_total, 3);
    assert_int_equal(s.files, 1);
    assert_true(s.bytes >= 1000 * 16);
    ltn_modules_free(m);
    ltn_modules_free(NULL);
}

/* One file at a time: the other goes, and comes again when it is asked for. */
static void test_bounds(void **state)
{
    (void)state;
    const uint32_t pid = (uint32_t)getpid();
    const struct {
        size_t bytes, files;
    } limits[] = {{1 << 20, 1}, {16, 8}};
    for (size_t i = 0; i < 2; i++) {
        struct ltn_modules *m = ltn_modules_new(limits[i].bytes, limits[i].files);
        struct ltn_modules_stats s;
        struct ltn_mapping a = by_path("getpid");
        struct ltn_mapping b = by_path("_cmocka_run_group_tests");
        assert_string_not_equal(a.path, b.path);
        assert_non_null(ltn_modules_of(m, pid, &a));
        assert_non_null(ltn_modules_of(m, pid, &b));
        assert_non_null(ltn_modules_of(m, pid, &a));
        ltn_modules_stats(m, &s);
        assert_int_equal(s.files, 1);
        assert_int_equal(s.opened_total, 3);
        assert_int_equal(s.evicted_total, 2);
        ltn_modules_free(m);
    }
}

/* At rest no file is open; what was asked for before is known, the rest is read again. */
static void test_rest(void **state)
{
    (void)state;
    char name[64];
    uint32_t pid = (uint32_t)getpid();
    struct ltn_modules *m = ltn_modules_new(1 << 20, 4);
    struct ltn_mapping libc = by_path("getpid");
    Dl_info info;
    assert_true(dladdr(dlsym(RTLD_DEFAULT, "getpid"), &info) != 0);
    uint64_t at = (uint64_t)((uintptr_t)info.dli_saddr - (uintptr_t)info.dli_fbase);
    int before = dup(0);
    (void)close(before);
    assert_int_equal(ltn_modules_name(m, pid, &libc, at, name, sizeof(name)), 0);
    assert_non_null(strstr(name, "getpid"));
    ltn_modules_rest(m);
    int after = dup(0);
    (void)close(after);
    assert_int_equal(after, before); /* the lowest free number is the one it was */
    assert_int_equal(ltn_symtab_name(ltn_modules_of(m, pid, &libc), at + 4, name, sizeof(name)),
                     -EBADF);
    name[0] = '\0';
    assert_int_equal(ltn_modules_name(m, 0x7ffffff0, &libc, at, name, sizeof(name)), 0);
    assert_non_null(strstr(name, "getpid"));
    assert_true(ltn_modules_name(m, 0x7ffffff0, &libc, at + 4, name, sizeof(name)) < 0);
    assert_int_equal(ltn_modules_name(m, pid, &libc, at + 4, name, sizeof(name)), 0);
    ltn_modules_free(m);
}

static void test_vdso(void **state)
{
    (void)state;
    char name[64];
    struct ltn_modules *m = ltn_modules_new(1 << 20, 4);
    struct ltn_symtab *t = ltn_modules_vdso(m);
    assert_non_null(t);
    assert_ptr_equal(ltn_modules_vdso(m), t);
    bool found = false;
    for (uint64_t at = 0; at < 0x4000 && !found; at += 16) {
        found = ltn_symtab_name(t, at, name, sizeof(name)) == 0 &&
                strstr(name, "clock_gettime") != NULL;
    }
    assert_true(found);
    ltn_modules_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_path),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_vdso),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
