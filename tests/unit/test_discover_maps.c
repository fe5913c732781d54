/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "discover/maps.h"

static int parse(const char *line, struct ltn_map_line *m)
{
    return ltn_map_line_parse(line, strlen(line), m);
}

static void test_lines(void **state)
{
    (void)state;
    struct ltn_map_line m;
    assert_int_equal(
        parse("7f0000001000-7f0000003000 r-xp 00002000 fe:1f 12345    /usr/lib/a b.so", &m), 0);
    assert_int_equal(m.start, 0x7f0000001000);
    assert_int_equal(m.end, 0x7f0000003000);
    assert_int_equal(m.pgoff_bytes, 0x2000);
    assert_int_equal(m.dev_major, 0xfe);
    assert_int_equal(m.dev_minor, 0x1f);
    assert_int_equal(m.ino, 12345);
    assert_true(m.readable && m.executable && !m.deleted);
    assert_int_equal(m.path_len, strlen("/usr/lib/a b.so"));
    assert_memory_equal(m.path, "/usr/lib/a b.so", m.path_len);
    assert_int_equal(parse("1000-2000 rw-p 00000000 00:00 0 ", &m), 0);
    assert_int_equal(m.path_len, 0);
    assert_false(m.executable);
    assert_int_equal(parse("1000-2000 rw-p 00000000 00:00 0", &m), 0);
    assert_int_equal(parse("1000-2000 r--p 00000000 08:01 7 /x (deleted)", &m), 0);
    assert_true(m.deleted);
    assert_int_equal(m.path_len, 2);
    assert_int_equal(
        parse("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]", &m), 0);
    static const char *const bad[] = {
        "",
        "x",
        "1000",
        "1000-",
        "1000-2000",
        "1000-2000 r-xp",
        "2000-1000 r-xp 0 0:0 1 /x",
        "1000-1000 r-xp 0 0:0 1 /x",
        "10000000000000000-2000 r-xp 0 0:0 1 /x",
        "1000-2000 r-xp 0 100000000:0 1 /x",
        "1000-2000 r-xp 0 0:0 99999999999999999999999 /x",
        "1000-2000 r-xp 0 0:0 12a /x",
        "1000-2000 r-xp 0 0:0 ",
        "1000-2000 r-xp 0 0:0",
        "1000-2000 r-xpp 0 0:0 1 /x",
        "-2000 r-xp 0 0:0 1 /x",
        "ABCD-F000 r-xp 0 0:0 1 /x",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (parse(bad[i], &m) != LTN_ERR_MALFORMED) {
            fail_msg("accepted: %s", bad[i]);
        }
    }
}

/* Every line of a real file is understood, and the file that holds this function is found. */
static void test_own_maps(void **state)
{
    (void)state;
    struct ltn_buf text;
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    assert_int_equal(ltn_file_read("/proc/self/maps", &text), 0);
    size_t lines = 0;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.data[i] == '\n';
    }
    struct stat exe;
    assert_int_equal(stat("/proc/self/exe", &exe), 0);
    size_t pos = 0;
    size_t parsed = 0;
    bool found = false;
    struct ltn_map_line m;
    uintptr_t here = (uintptr_t)&test_own_maps;
    while (ltn_maps_next(text.data, text.len, &pos, &m)) {
        parsed++;
        if (here >= m.start && here < m.end) {
            found = m.executable && m.ino == exe.st_ino;
        }
    }
    assert_int_equal(parsed, lines);
    assert_true(found);
    /* A cut last line is left out; lines that make no sense are passed over. */
    pos = 0;
    static const char cut[] = "junk\n1000-2000 rw-p 00000000 00:00 0 \n3000-40";
    assert_true(ltn_maps_next(cut, sizeof(cut) - 1, &pos, &m));
    assert_int_equal(m.start, 0x1000);
    assert_false(ltn_maps_next(cut, sizeof(cut) - 1, &pos, &m));
    ltn_buf_done(&text);
}

static enum ltn_lib_kind kind(const char *path)
{
    return ltn_lib_kind_of_path(path, strlen(path));
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(kind("/usr/local/cuda/lib64/libcudart.so.12"), LTN_LIB_CUDART);
    assert_int_equal(kind("/x/libcudart.so.11.8.89"), LTN_LIB_CUDART);
    assert_int_equal(kind("/x/libcudart.so"), LTN_LIB_CUDART);
    assert_int_equal(kind("/x/libcudart-d0da41ae.so.11.0"), LTN_LIB_CUDART);
    assert_int_equal(kind("libcudart.so.13"), LTN_LIB_CUDART);
    assert_int_equal(kind("/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"), LTN_LIB_CUDA);
    assert_int_equal(kind("/x/libcuda.so.1"), LTN_LIB_CUDA);
    assert_int_equal(kind("/x/libnccl.so.2"), LTN_LIB_NCCL);
    assert_int_equal(kind("/x/libnccl-net.so"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/libcudart_static.a"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/libcudart.sox"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/libcudart-.so.12"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/libcudart-XYZ.so.12"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/libcudadebugger.so.1"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/libcuda.so.1/other"), LTN_LIB_NONE);
    assert_int_equal(kind("/x/xlibcuda.so.1"), LTN_LIB_NONE);
    assert_int_equal(kind(""), LTN_LIB_NONE);
    assert_int_equal(kind("lib"), LTN_LIB_NONE);
    assert_true(ltn_lib_may_embed("/t/libtorch_cuda.so", 19));
    assert_true(ltn_lib_may_embed("/t/libtorch_cuda_cpp.so", 23));
    assert_false(ltn_lib_may_embed("/t/libtorch_cpu.so", 18));
    assert_string_equal(ltn_lib_kind_name(LTN_LIB_EMBEDDED), "embedded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_own_maps),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
