/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "discover/libs.h"
#include "drop_tree.h"

/* First mapping of the process whose path ends so; text must outlive the line. */
static bool find_line(pid_t pid, const char *tail, struct ltn_buf *text, struct ltn_map_line *ret)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    ltn_buf_reset(text);
    assert_int_equal(ltn_file_read(path, text), 0);
    size_t pos = 0;
    size_t n = strlen(tail);
    while (ltn_maps_next(text->data, text->len, &pos, ret)) {
        if (ret->path_len >= n && memcmp(ret->path + ret->path_len - n, tail, n) == 0) {
            return true;
        }
    }
    return false;
}

static struct ltn_lib *map_lib(struct ltn_libs *libs, pid_t pid, const char *tail,
                               enum ltn_lib_kind kind)
{
    struct ltn_buf text;
    struct ltn_map_line line;
    struct ltn_lib *lib;
    bool new_file;
    bool new_user;
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    assert_true(find_line(pid, tail, &text, &line));
    assert_int_equal(ltn_libs_map(libs, pid, &line, kind, &lib, &new_file, &new_user), 0);
    ltn_buf_done(&text);
    return lib;
}

/* Does the open file define this function, and is it the same content as that file? */
static void assert_same_content(int fd, const char *path)
{
    char a[4096];
    char b[4096];
    assert_true(fd >= 0);
    int other = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = pread(fd, a, sizeof(a), 0);
    ssize_t m = read(other, b, sizeof(b));
    (void)close(other);
    assert_true(n > 0 && n == m);
    assert_memory_equal(a, b, (size_t)n);
}

static void test_two_processes(void **state)
{
    (void)state;
    struct child a;
    struct child b;
    child_start(&a, FIXTURES "/discover_child", NULL);
    child_start(&b, FIXTURES "/discover_child", NULL);
    (void)child_open(&a, FIXTURES "/libcudart.so.12");
    (void)child_open(&b, FIXTURES "/libcudart.so.12");
    struct ltn_libs *libs = ltn_libs_new(4);
    struct ltn_lib *lib = map_lib(libs, a.pid, "/libcudart.so.12", LTN_LIB_CUDART);
    assert_ptr_equal(map_lib(libs, b.pid, "/libcudart.so.12", LTN_LIB_CUDART), lib);
    assert_ptr_equal(map_lib(libs, b.pid, "/libcudart.so.12", LTN_LIB_CUDART), lib);
    assert_int_equal(ltn_libs_count(libs), 1);
    assert_int_equal(lib->user_count, 2);
    assert_true(lib->readable);
    assert_int_equal(lib->build_id_len, 20);
    assert_string_equal(lib->soname, "libcudart.so.12");
    assert_string_equal(lib->path, FIXTURES "/libcudart.so.12");
    struct stat st;
    assert_int_equal(stat(FIXTURES "/libcudart.so.12", &st), 0);
    assert_int_equal(lib->ino, st.st_ino);
    assert_int_equal(lib->size_bytes, st.st_size);
    int fd = ltn_lib_open(lib);
    assert_same_content(fd, FIXTURES "/libcudart.so.12");
    (void)close(fd);
    char path[PATH_MAX];
    assert_int_equal(ltn_lib_agent_path(lib, path), 0);
    assert_int_equal(strncmp(path, "/proc/", 6), 0);
    assert_int_equal(access(path, R_OK), 0);
    assert_true(ltn_lib_has_user(lib, a.pid) && ltn_lib_has_user(lib, b.pid));
    assert_false(ltn_lib_has_user(lib, getpid()));
    assert_true(ltn_libs_unmap(libs, lib, a.pid));
    assert_false(ltn_libs_unmap(libs, lib, a.pid));
    assert_false(ltn_libs_sweep(libs, NULL, NULL));
    assert_true(ltn_libs_unmap(libs, lib, b.pid));
    assert_true(ltn_libs_sweep(libs, NULL, NULL));
    assert_int_equal(ltn_libs_count(libs), 0);
    child_end(&a);
    child_end(&b);
    ltn_libs_free(libs);
}

/* A deleted file, and one whose path holds another file by now: the mapped content is opened. */
static void test_deleted_and_replaced(void **state)
{
    (void)state;
    char dir[64];
    char lib_path[128];
    make_dir(dir);
    (void)snprintf(lib_path, sizeof(lib_path), "%s/libcudart.so.12", dir);
    copy_file(FIXTURES "/libcudart.so.12", lib_path);
    struct child c;
    child_start(&c, FIXTURES "/discover_child", NULL);
    (void)child_open(&c, lib_path);
    struct ltn_libs *libs = ltn_libs_new(4);
    struct ltn_lib *lib = map_lib(libs, c.pid, "/libcudart.so.12", LTN_LIB_CUDART);
    assert_false(lib->deleted);
    assert_int_equal(unlink(lib_path), 0);
    copy_file(FIXTURES "/libnccl.so.2", lib_path); /* known before, replaced since */
    int fd = ltn_lib_open(lib);
    assert_same_content(fd, FIXTURES "/libcudart.so.12");
    (void)close(fd);
    char path[PATH_MAX];
    assert_int_equal(ltn_lib_agent_path(lib, path), 0);
    assert_non_null(strstr(path, "/map_files/"));
    ltn_libs_free(libs);

    libs = ltn_libs_new(4); /* seen for the first time when it is gone already */
    lib = map_lib(libs, c.pid, "/libcudart.so.12", LTN_LIB_CUDART);
    assert_true(lib->deleted);
    assert_true(lib->readable);
    assert_string_equal(lib->path, lib_path);
    fd = ltn_lib_open(lib);
    assert_same_content(fd, FIXTURES "/libcudart.so.12");
    (void)close(fd);
    child_end(&c);
    assert_true(ltn_lib_open(lib) < 0);
    ltn_libs_free(libs);
    (void)unlink(lib_path);
    (void)rmdir(dir);
}

/* A process in another root, as in a container; a symbolic link in that root must not lead out. */
static void test_other_root(void **state)
{
    (void)state;
    char root[64];
    char path[256];
    make_dir(root);
    (void)snprintf(path, sizeof(path),
                   "cp -L --parents $(ldd %s | grep -o '/[^ ]*') %s 2>/dev/null",
                   FIXTURES "/discover_child", root);
    /* check-src: allow banned: a fixed command on paths of the build */
    if (system(path) != 0) {
        print_message("SKIPPED: no copy of the C library\n");
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/child", root);
    copy_file(FIXTURES "/discover_child", path);
    (void)snprintf(path, sizeof(path), "%s/real", root);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s/link", root);
    assert_int_equal(symlink("/real", path), 0);
    (void)snprintf(path, sizeof(path), "%s/real/libcuda.so.1", root);
    copy_file(FIXTURES "/libcuda.so.1", path);
    struct child c;
    child_start_in(&c, "/child", NULL, root);
    (void)child_open(&c, "/link/libcuda.so.1");
    struct ltn_libs *libs = ltn_libs_new(4);
    struct ltn_lib *lib = map_lib(libs, c.pid, "/libcuda.so.1", LTN_LIB_CUDA);
    assert_true(lib->readable);
    int fd = ltn_lib_open(lib);
    assert_same_content(fd, FIXTURES "/libcuda.so.1");
    (void)close(fd);
    /* The same file through the link, as if the kernel had named it so. */
    free(lib->raw_path);
    lib->raw_path = strdup("/link/libcuda.so.1");
    fd = ltn_lib_open(lib);
    assert_same_content(fd, FIXTURES "/libcuda.so.1");
    (void)close(fd);
    child_end(&c);
    ltn_libs_free(libs);
    assert_int_equal(ltn_drop_tree(root), 0);
}

/* One build under two inodes. */
static void test_twins(void **state)
{
    (void)state;
    char dir[64];
    char copy[128];
    make_dir(dir);
    (void)snprintf(copy, sizeof(copy), "%s/libnccl.so.2", dir);
    copy_file(FIXTURES "/libnccl.so.2", copy);
    struct child c;
    child_start(&c, FIXTURES "/discover_child", NULL);
    (void)child_open(&c, FIXTURES "/libnccl.so.2");
    struct ltn_libs *libs = ltn_libs_new(2);
    struct ltn_lib *first = map_lib(libs, c.pid, "/libnccl.so.2", LTN_LIB_NCCL);
    struct ltn_lib *second;
    assert_int_equal(ltn_libs_give(libs, copy, &second), 0);
    assert_ptr_not_equal(first, second);
    assert_int_equal(first->twin_id, 0);
    assert_int_equal(second->twin_id, first->id);
    assert_ptr_equal(ltn_libs_get(libs, second->id), second);
    assert_null(ltn_libs_get(libs, 99));
    struct ltn_lib *third;
    assert_int_equal(ltn_libs_give(libs, FIXTURES "/libcuda.so.1", &third), LTN_ERR_COUNT);
    (void)unlink(copy);
    (void)rmdir(dir);
    child_end(&c);
    ltn_libs_free(libs);
}

static void test_given(void **state)
{
    (void)state;
    struct ltn_libs *libs = ltn_libs_new(4);
    struct ltn_lib *lib;
    assert_int_equal(ltn_libs_give(libs, FIXTURES "/discover_child_embeds", &lib), 0);
    assert_int_equal(lib->kind, LTN_LIB_EMBEDDED);
    assert_int_equal(lib->embeds, LTN_EMBEDS_CUDART);
    int fd = ltn_lib_open(lib);
    assert_same_content(fd, FIXTURES "/discover_child_embeds");
    (void)close(fd);
    assert_int_equal(ltn_libs_give(libs, FIXTURES "/discover_child", &lib), LTN_ERR_NOT_FOUND);
    assert_int_equal(ltn_libs_give(libs, FIXTURES "/no-such", &lib), -ENOENT);
    assert_int_equal(ltn_libs_give(libs, "/etc/passwd", &lib), LTN_ERR_MALFORMED);
    assert_int_equal(ltn_libs_give(libs, "/dev/zero", &lib), LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_libs_count(libs), 1);
    assert_false(ltn_libs_sweep(libs, NULL, NULL)); /* stays without users */
    ltn_libs_free(libs);
}

/* Two mounts of one layer: overlay shows the file under devices of its own. */
static void test_overlay(void **state)
{
    (void)state;
    char dir[64];
    char p[7][96];
    char in_lower[160];
    static const char *const names[] = {"lower", "up1", "up2", "work1", "work2", "m1", "m2"};
    make_dir(dir);
    if (mount("none", dir, "tmpfs", 0, NULL) < 0) {
        (void)rmdir(dir);
        print_message("SKIPPED: no right to mount\n");
        skip();
    }
    for (size_t i = 0; i < 7; i++) {
        (void)snprintf(p[i], sizeof(p[i]), "%s/%s", dir, names[i]);
        assert_int_equal(mkdir(p[i], 0755), 0);
    }
    (void)snprintf(in_lower, sizeof(in_lower), "%s/libcuda.so.1", p[0]);
    copy_file(FIXTURES "/libcuda.so.1", in_lower);
    char options[600];
    (void)snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", p[0], p[1],
                   p[3]);
    bool ok = mount("overlay", p[5], "overlay", 0, options) == 0;
    (void)snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", p[0], p[2],
                   p[4]);
    ok = ok && mount("overlay", p[6], "overlay", 0, options) == 0;
    if (ok) {
        struct child a;
        struct child b;
        char lib_path[160];
        child_start(&a, FIXTURES "/discover_child", NULL);
        child_start(&b, FIXTURES "/discover_child", NULL);
        (void)snprintf(lib_path, sizeof(lib_path), "%s/libcuda.so.1", p[5]);
        (void)child_open(&a, lib_path);
        (void)snprintf(lib_path, sizeof(lib_path), "%s/libcuda.so.1", p[6]);
        (void)child_open(&b, lib_path);
        struct ltn_libs *libs = ltn_libs_new(4);
        struct ltn_lib *first = map_lib(libs, a.pid, "/libcuda.so.1", LTN_LIB_CUDA);
        struct ltn_lib *second = map_lib(libs, b.pid, "/libcuda.so.1", LTN_LIB_CUDA);
        assert_true(first->readable);
        assert_true(second->readable);
        /* By kernel the mapping shows the mount's device or the layer's: two files that are noted
         * as twins, or one. */
        assert_true(first == second || second->twin_id == first->id);
        int fd = ltn_lib_open(second);
        assert_same_content(fd, FIXTURES "/libcuda.so.1");
        (void)close(fd);
        child_end(&a);
        child_end(&b);
        ltn_libs_free(libs);
    }
    (void)umount(p[6]);
    (void)umount(p[5]);
    (void)umount(dir);
    (void)rmdir(dir);
    if (!ok) {
        print_message("SKIPPED: no overlay file system\n");
        skip();
    }
}

static void test_probed_byte(void **state)
{
    (void)state;
    struct child c;
    child_start(&c, FIXTURES "/discover_child", NULL);
    (void)child_open(&c, FIXTURES "/libcuda.so.1");
    struct ltn_libs *libs = ltn_libs_new(4);
    struct ltn_lib *lib = map_lib(libs, c.pid, "/libcuda.so.1", LTN_LIB_CUDA);
    struct ltn_elf *e;
    assert_int_equal(ltn_elf_open(FIXTURES "/libcuda.so.1", &e), 0);
    struct ltn_elf_sym s = {.name = "cuInit"};
    assert_int_equal(ltn_elf_lookup(e, LTN_ELF_DYNSYM, &s, 1), 0);
    ltn_elf_free(e);
    assert_int_equal(ltn_lib_is_probed(lib, c.pid, s.file_offset), 0);
#ifdef __x86_64__
    /* Put a breakpoint there by hand, as the kernel would. */
    struct ltn_buf text;
    struct ltn_map_line m;
    char path[64];
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)c.pid);
    assert_int_equal(ltn_file_read(path, &text), 0);
    size_t pos = 0;
    uint64_t addr = 0;
    while (ltn_maps_next(text.data, text.len, &pos, &m)) {
        if (m.executable && m.ino == lib->ino) {
            addr = m.start + s.file_offset - m.pgoff_bytes;
        }
    }
    ltn_buf_done(&text);
    (void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)c.pid);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && pwrite(fd, "\xcc", 1, (off_t)addr) == 1) {
        assert_int_equal(ltn_lib_is_probed(lib, c.pid, s.file_offset), 1);
    }
    (void)close(fd);
#endif
    assert_int_equal(ltn_lib_is_probed(lib, c.pid, 1u << 30), LTN_ERR_NOT_FOUND);
    child_end(&c);
    assert_true(ltn_lib_is_probed(lib, c.pid, s.file_offset) < 0);
    ltn_libs_free(libs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes), cmocka_unit_test(test_deleted_and_replaced),
        cmocka_unit_test(test_other_root),    cmocka_unit_test(test_twins),
        cmocka_unit_test(test_given),         cmocka_unit_test(test_overlay),
        cmocka_unit_test(test_probed_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
