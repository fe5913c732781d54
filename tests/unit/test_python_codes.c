/* SPDX-License-Identifier: Apache-2.0 */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/err.h"
#include "symbol/python.h"
#include "symbol/python_codes.h"
#include "symbol/python_layout.h"

static struct ltn_event_python_code record(uint64_t identity, const char *file, const char *name)
{
    struct ltn_event_python_code e = {
        .identity = identity,
        .version = LTN_PYTHON_VERSION(3, 11),
        .first_line = 5,
        .first_traceable = 1,
        .table_bytes = 4,
        .part_bytes = 4,
        .file_kind = 1,
        .name_kind = 1,
        .file_bytes = (ltn_u16)strlen(file),
        .name_bytes = (ltn_u16)strlen(name),
        .part = {0x80 | 10 << 3, 1, 2, 0x80 | 15 << 3 | 7}, /* [0,2): line 5, then none */
    };
    memcpy(e.file, file, strlen(file));
    memcpy(e.name, name, strlen(name));
    return e;
}

static struct ltn_python_frame frame(uint64_t identity, int32_t offset, uint32_t flags)
{
    return (struct ltn_python_frame){
        .identity = identity, .offset = (uint32_t)offset, .flags = flags};
}

static void names_by_identity(void **state)
{
    (void)state;
    struct ltn_python_codes *c = ltn_python_codes_new(1 << 20);
    struct ltn_event_python_code e = record(7, "train.py", "Trainer.step\x1b");
    struct ltn_python_line line;
    e.first_traceable = 0;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), 0);
    struct ltn_python_frame f = frame(7, 0, 0);
    assert_int_equal(ltn_python_codes_name(c, &f, &line), 0);
    assert_string_equal(line.file, "train.py");
    assert_string_equal(line.function, "Trainer.step?");
    assert_int_equal(line.line, 5);
    assert_true(line.exact);
    f = frame(8, 0, 0); /* another code object, perhaps at the same address */
    assert_int_equal(ltn_python_codes_name(c, &f, &line), LTN_ERR_NOT_FOUND);
    f = frame(0, 0, 0);
    assert_int_equal(ltn_python_codes_name(c, &f, &line), LTN_ERR_NOT_FOUND);
    assert_int_equal(ltn_python_codes_stats(c).unknown_total, 2);
    ltn_python_codes_free(c);
}

static void positions(void **state)
{
    (void)state;
    struct ltn_python_codes *c = ltn_python_codes_new(1 << 20);
    struct ltn_event_python_code e = record(7, "a", "b");
    struct ltn_python_line line;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), 0);
    struct ltn_python_frame f = frame(7, 2, 0); /* a place without a line */
    assert_int_equal(ltn_python_codes_name(c, &f, &line), 0);
    assert_false(line.exact);
    f = frame(7, 0, 0); /* before the first instruction that counts: being set up */
    assert_int_equal(ltn_python_codes_name(c, &f, &line), LTN_ERR_CLOSED);
    f = frame(7, 0, LTN_PYTHON_GENERATOR); /* not so in a generator */
    assert_int_equal(ltn_python_codes_name(c, &f, &line), 0);
    f = frame(7, 3, 0);
    assert_int_equal(ltn_python_codes_name(c, &f, &line), LTN_ERR_MALFORMED);
    assert_int_equal(ltn_python_codes_stats(c).rejected_total, 1);
    f = frame(7, 3, LTN_PYTHON_NO_OFFSET);
    assert_int_equal(ltn_python_codes_name(c, &f, &line), 0);
    assert_int_equal(line.line, 5);
    assert_false(line.exact);
    ltn_python_codes_free(c);
}

static void parts(void **state)
{
    (void)state;
    struct ltn_python_codes *c = ltn_python_codes_new(1 << 20);
    struct ltn_event_python_code e = record(7, "a", "b");
    struct ltn_python_line line;
    e.first_traceable = 0;
    e.table_bytes = LTN_PYTHON_PART_BYTES + 3;
    e.part_bytes = LTN_PYTHON_PART_BYTES;
    for (size_t i = 0; i < LTN_PYTHON_PART_BYTES; i += 2) {
        e.part[i] = 0x80; /* one unit, the same line */
        e.part[i + 1] = 1;
    }
    int32_t behind = LTN_PYTHON_PART_BYTES; /* each pair of bytes stands for 2 bytes of code */
    struct ltn_python_frame f = frame(7, behind, 0);
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), 0);
    assert_int_equal(ltn_python_codes_name(c, &f, &line), 0);
    assert_false(line.exact); /* the rest has not come */
    e.part_at = LTN_PYTHON_PART_BYTES;
    e.part_bytes = 3;
    memcpy(e.part, (const uint8_t[]){0x80 | 12 << 3, 1, 1}, 3);
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), 0);
    assert_int_equal(ltn_python_codes_name(c, &f, &line), 0);
    assert_true(line.exact);
    assert_int_equal(line.line, 7);
    e.identity = 9; /* of one whose first part was lost */
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_MALFORMED);
    ltn_python_codes_free(c);
}

static void hostile_records(void **state)
{
    (void)state;
    struct ltn_python_codes *c = ltn_python_codes_new(1 << 20);
    const struct ltn_event_python_code good = record(7, "a", "b");
    struct ltn_event_python_code e = good;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e) - 1), LTN_ERR_MALFORMED);
    e.file_kind = 3;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_MALFORMED);
    e = good;
    e.name_bytes = LTN_PYTHON_NAME_BYTES + 1;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_MALFORMED);
    e = good;
    e.part_bytes = 5; /* more than the whole */
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_MALFORMED);
    e = good;
    e.part_at = UINT32_MAX;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_MALFORMED);
    e = good;
    e.identity = 0;
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_MALFORMED);
    e = good;
    e.table_bytes = UINT32_MAX; /* more than is ever sent: kept as far as it comes */
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), 0);
    assert_int_equal(ltn_python_codes_stats(c).malformed_total, 6);
    ltn_python_codes_free(c);
}

static void room_is_bounded(void **state)
{
    (void)state;
    struct ltn_python_codes *c = ltn_python_codes_new(20000);
    struct ltn_python_line line;
    for (uint64_t i = 1; i <= 1000; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "f%llu", (unsigned long long)i);
        struct ltn_event_python_code e = record(i, "module.py", name);
        assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), 0);
        assert_true(ltn_python_codes_stats(c).bytes_now <= 20000);
        struct ltn_python_frame f = frame(1, 0, LTN_PYTHON_GENERATOR);
        assert_int_equal(ltn_python_codes_name(c, &f, &line), 0); /* in use: stays */
    }
    assert_true(ltn_python_codes_stats(c).dropped_total > 500);
    ltn_python_codes_free(c);
    c = ltn_python_codes_new(100);
    struct ltn_event_python_code e = record(1, "module.py", "f");
    assert_int_equal(ltn_python_codes_add(c, &e, sizeof(e)), LTN_ERR_COUNT);
    ltn_python_codes_free(c);
    ltn_python_codes_free(NULL);
}

static uint64_t forgotten[4];
static size_t forgotten_count;

static void forget(void *ctx, uint64_t identity)
{
    assert_ptr_equal(ctx, forgotten);
    forgotten[forgotten_count++] = identity;
}

/* What of a stack is known is said, what is not is asked for. */
static void frames_of_a_stack(void **state)
{
    (void)state;
    static struct ltn_stack_builder b;
    struct ltn_python *p = ltn_python_new(0);
    struct ltn_event_python_code e = record(7, "train.py", "step");
    struct ltn_event_stack s = {.python_count = 4};
    s.python[0] = frame(7, 0, LTN_PYTHON_GENERATOR);
    s.python[1] = frame(8, 0, 0);                    /* not told of */
    s.python[2] = frame(7, 0, 0);                    /* being set up */
    s.python[3] = frame(7, 4, LTN_PYTHON_GENERATOR); /* no line there */
    ltn_python_add(p, &e, sizeof(e));
    ltn_python_add(p, &e, 10); /* cut short */
    ltn_stack_builder_init(&b);
    s.python_flags = LTN_PYTHON_TRUNCATED;
    assert_int_equal(ltn_python_frames(p, &s, &b, forget, forgotten), 1);
    assert_int_equal(b.count, 3);
    assert_true(b.truncated);
    assert_int_equal(forgotten_count, 1);
    assert_int_equal(forgotten[0], 8);
    struct ltn_stack *stack = ltn_stack_new(&b, &(struct ltn_stack){.stack_id = 1});
    char text[64];
    assert_string_equal(ltn_stack_frame_text(&stack->frames[0], text, sizeof(text)),
                        "step (train.py:5)");
    assert_string_equal(ltn_stack_frame_text(&stack->frames[1], text, sizeof(text)), "?");
    assert_string_equal(ltn_stack_frame_text(&stack->frames[2], text, sizeof(text)),
                        "step (train.py)");
    ltn_stack_unref(stack);
    ltn_stack_builder_done(&b);
    assert_int_equal(ltn_python_stats(p).malformed_total, 1);
    ltn_python_free(p);
    ltn_python_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_by_identity),
        cmocka_unit_test(positions),
        cmocka_unit_test(parts),
        cmocka_unit_test(hostile_records),
        cmocka_unit_test(room_is_bounded),
        cmocka_unit_test(frames_of_a_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
