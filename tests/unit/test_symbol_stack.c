/* SPDX-License-Identifier: Apache-2.0 */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "symbol/cache.h"
#include "symbol/stack.h"

static struct ltn_stack_frame native(const char *function, const char *file, const char *build_id,
                                     uint64_t offset)
{
    return (struct ltn_stack_frame){.kind = LTN_FRAME_NATIVE,
                                    .function = function,
                                    .file = file,
                                    .build_id = build_id,
                                    .offset = offset};
}

static struct ltn_stack_frame python(const char *function, const char *file, uint32_t line)
{
    return (struct ltn_stack_frame){
        .kind = LTN_FRAME_PYTHON, .function = function, .file = file, .line = line};
}

static struct ltn_stack *make(uint64_t id, const struct ltn_stack_frame *frames, size_t n)
{
    struct ltn_stack_builder *b = malloc(sizeof(*b));
    assert_non_null(b);
    ltn_stack_builder_init(b);
    for (size_t i = 0; i < n; i++) {
        ltn_stack_builder_add(b, &frames[i]);
    }
    struct ltn_stack *s =
        ltn_stack_new(b, &(struct ltn_stack){.stack_id = id, .pid = 7, .proc_start_ns = 9});
    assert_non_null(s);
    ltn_stack_builder_done(b);
    free(b);
    return s;
}

static uint64_t content(struct ltn_stack_frame a, struct ltn_stack_frame b)
{
    const struct ltn_stack_frame frames[] = {a, b};
    struct ltn_stack *s = make(1, frames, 2);
    uint64_t h = s->content;
    ltn_stack_unref(s);
    return h;
}

static void test_what_is_kept(void **state)
{
    (void)state;
    const struct ltn_stack_frame frames[] = {
        native("read\033[2J_all", "/usr/lib/lib\nx.so", "ab", 5),
        python("train", "/app/train.py", 42)};
    struct ltn_stack *s = make(3, frames, 2);
    assert_int_equal(s->stack_id, 3);
    assert_int_equal(s->pid, 7);
    assert_int_equal(s->proc_start_ns, 9);
    assert_int_equal(s->count, 2);
    assert_false(s->truncated);
    assert_null(strpbrk(s->frames[0].function, "\033\n")); /* text of a stranger */
    assert_null(strpbrk(s->frames[0].file, "\033\n"));
    assert_int_equal(s->frames[1].line, 42);
    assert_string_equal(s->frames[1].file, "/app/train.py");
    assert_string_equal(s->frames[1].build_id, "");
    ltn_stack_unref(s);
}

static void test_content(void **state)
{
    (void)state;
    struct ltn_stack_frame end = native("main", "/a/app", "ff01", 0x2000);
    uint64_t base = content(native("f", "/a/app", "ff01", 0x1000), end);
    /* The build says what it is: path and symbols do not matter. */
    assert_true(base == content(native("f", "/b/copy", "ff01", 0x1000), end));
    assert_true(base == content(native("", "/a/app", "ff01", 0x1000), end));
    assert_false(base == content(native("f", "/a/app", "ff02", 0x1000), end));
    assert_false(base == content(native("f", "/a/app", "ff01", 0x1001), end));
    assert_false(base == content(end, native("f", "/a/app", "ff01", 0x1000)));
    /* Without one the path says it. */
    assert_false(content(native("f", "/a", "", 1), end) == content(native("f", "/b", "", 1), end));
    /* Python: function, file and line. */
    uint64_t py = content(python("f", "a.py", 1), end);
    assert_false(py == content(python("g", "a.py", 1), end));
    assert_false(py == content(python("f", "b.py", 1), end));
    assert_false(py == content(python("f", "a.py", 2), end));
    assert_false(py == content(native("f", "a.py", "", 1), end));
    /* Texts do not run into each other. */
    assert_false(content(python("ab", "c", 1), end) == content(python("a", "bc", 1), end));
}

static void test_limits(void **state)
{
    (void)state;
    struct ltn_stack_frame frames[LTN_STACK_FRAMES + 1];
    char name[2 * LTN_STACK_NAME_BYTES];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    for (size_t i = 0; i <= LTN_STACK_FRAMES; i++) {
        frames[i] = native(name, name, name, i);
    }
    struct ltn_stack *s = make(1, frames, LTN_STACK_FRAMES);
    assert_int_equal(s->count, LTN_STACK_FRAMES);
    assert_false(s->truncated);
    assert_int_equal(strlen(s->frames[LTN_STACK_FRAMES - 1].file), LTN_STACK_NAME_BYTES - 1);
    ltn_stack_unref(s);
    s = make(1, frames, LTN_STACK_FRAMES + 1);
    assert_int_equal(s->count, LTN_STACK_FRAMES);
    assert_true(s->truncated);
    ltn_stack_unref(s);
    ltn_stack_unref(NULL);
}

static void expect_text(struct ltn_stack_frame f, const char *want)
{
    char out[64];
    assert_string_equal(ltn_stack_frame_text(&f, out, sizeof(out)), want);
}

static void test_text(void **state)
{
    (void)state;
    expect_text(native("f(int)", "/a/app", "", 16), "f(int)");
    expect_text(native("", "/a/app", "", 0x10), "app+0x10");
    expect_text(native("", "app", "", 0x10), "app+0x10");
    expect_text(native("", "[anon]", "", 0), "[anon]");
    expect_text(native("", "", "", 0), "?");
    expect_text(python("train", "/app/t.py", 3), "train (/app/t.py:3)");
    expect_text(python("", "", 0), "?");
    expect_text(python("step", "t.py", 0), "step (t.py)");
}

static void test_cache(void **state)
{
    (void)state;
    struct ltn_stack_frame f = native("f", "/a", "", 1);
    struct ltn_stack *a = make(1, &f, 1);
    struct ltn_stack *b = make(2, &f, 1);
    struct ltn_stack_cache *c = ltn_stack_cache_new(ltn_stack_bytes(a) + 1);
    assert_non_null(c);
    ltn_stack_cache_put(c, a);
    ltn_stack_cache_put(c, a);
    const struct ltn_stack *got = ltn_stack_cache_get(c, 1);
    assert_ptr_equal(got, a);
    ltn_stack_unref(got);
    assert_null(ltn_stack_cache_get(c, 2));
    ltn_stack_cache_put(c, b); /* no room for both */
    assert_null(ltn_stack_cache_get(c, 1));
    got = ltn_stack_cache_get(c, 2);
    ltn_stack_cache_free(c);
    ltn_stack_unref(b);
    assert_string_equal(got->frames[0].function, "f"); /* the reference holds it */
    ltn_stack_unref(got);
    ltn_stack_unref(a);
    ltn_stack_cache_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_kept), cmocka_unit_test(test_content),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_text),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
