/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmocka_all.h"

static void strings_and_numbers(void **state)
{
    (void)state;
    struct ltn_map m;
    int a;
    int b;
    ltn_map_init(&m, 10);
    assert_null(ltn_map_get_str(&m, "a"));
    assert_null(ltn_map_del(&m, "a", 1));
    assert_int_equal(ltn_map_put_str(&m, "a", &a), 0);
    assert_int_equal(ltn_map_put_str(&m, "", &b), 0);
    assert_int_equal(ltn_map_put_u64(&m, 0, &a), 0);
    assert_ptr_equal(ltn_map_get_str(&m, "a"), &a);
    assert_ptr_equal(ltn_map_get_str(&m, ""), &b);
    assert_ptr_equal(ltn_map_get_u64(&m, 0), &a);
    assert_null(ltn_map_get(&m, "a", 2)); /* the terminator is not part of the key */
    assert_null(ltn_map_get_u64(&m, 1));
    assert_int_equal(ltn_map_put_str(&m, "a", &b), 0);
    assert_ptr_equal(ltn_map_get_str(&m, "a"), &b);
    assert_int_equal(m.len, 3);
    assert_ptr_equal(ltn_map_del_u64(&m, 0), &a);
    assert_null(ltn_map_del_u64(&m, 0));
    assert_int_equal(m.len, 2);
    ltn_map_done(&m, NULL);
    ltn_map_done(NULL, NULL);
}

static void keys_are_copied(void **state)
{
    (void)state;
    struct ltn_map m;
    int a;
    char key[] = "key";
    ltn_map_init(&m, 10);
    assert_int_equal(ltn_map_put(&m, key, 3, &a), 0);
    memset(key, 'x', 3);
    assert_ptr_equal(ltn_map_get_str(&m, "key"), &a);
    ltn_map_done(&m, NULL);
}

static void the_ceiling_holds(void **state)
{
    (void)state;
    for (uint64_t max = 0; max < 100; max++) {
        struct ltn_map m;
        int a;
        int b;
        ltn_map_init(&m, max);
        for (uint64_t i = 0; i < max; i++) {
            assert_int_equal(ltn_map_put_u64(&m, i, &a), 0);
        }
        size_t slots = m.slot_count;
        assert_int_equal(ltn_map_put_u64(&m, max, &a), LTN_ERR_COUNT);
        assert_null(ltn_map_get_u64(&m, max));
        assert_int_equal(m.slot_count, slots); /* a refused key costs no memory */
        if (max > 0) {
            assert_int_equal(ltn_map_put_u64(&m, max - 1, &b), 0);
            assert_ptr_equal(ltn_map_get_u64(&m, max - 1), &b);
            assert_ptr_equal(ltn_map_del_u64(&m, 0), max == 1 ? &b : &a);
            assert_int_equal(ltn_map_put_u64(&m, max, &a), 0);
        }
        assert_int_equal(m.len, max);
        ltn_map_done(&m, NULL);
    }
}

static void done_frees_values_and_allows_reuse(void **state)
{
    (void)state;
    struct ltn_map m;
    ltn_map_init(&m, 100);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 50; i++) {
            void *p = malloc(1);
            assert_non_null(p);
            assert_int_equal(ltn_map_put_u64(&m, i, p), 0);
        }
        ltn_map_done(&m, free);
        assert_int_equal(m.len, 0);
        assert_null(ltn_map_get_u64(&m, 1));
    }
}

static void next_visits_each_value_once(void **state)
{
    (void)state;
    struct ltn_map m;
    static char seen[1000];
    ltn_map_init(&m, 1000);
    size_t pos = 0;
    assert_null(ltn_map_next(&m, &pos));
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(ltn_map_put_u64(&m, i, &seen[i]), 0);
    }
    pos = 0;
    size_t n = 0;
    for (char *p; (p = ltn_map_next(&m, &pos)) != NULL; n++) {
        assert_int_equal(*p, 0);
        *p = 1;
    }
    assert_int_equal(n, 1000);
    ltn_map_done(&m, NULL);
}

/* --- against a naive model ------------------------------------------------------------------ */

#define MAX_KEYS 400

static uint64_t random_state;

/* xorshift64 (Marsaglia 2003) */
static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Keys of different lengths, so that one is a prefix of another. */
static size_t make_key(unsigned k, char out[32])
{
    return (size_t)snprintf(out, 32, "%.*s%u", (int)(k % 7), "kkkkkkk", k / 7);
}

static void check_against(const struct ltn_map *m, const void *const *model, unsigned keys)
{
    size_t len = 0;
    for (unsigned k = 0; k < keys; k++) {
        char key[32];
        size_t n = make_key(k, key);
        assert_ptr_equal(ltn_map_get(m, key, n), model[k]);
        len += model[k] != NULL;
    }
    assert_int_equal(m->len, len);
    size_t pos = 0;
    size_t visited = 0;
    while (ltn_map_next(m, &pos) != NULL) {
        visited++;
    }
    assert_int_equal(visited, len);
}

static void run_model(uint64_t seed, unsigned keys, size_t max_entries, unsigned operations)
{
    static char values[64];
    const void *model[MAX_KEYS] = {NULL};
    struct ltn_map m;
    ltn_map_init(&m, max_entries);
    m.seed = seed;
    random_state = seed;
    for (unsigned i = 0; i < operations; i++) {
        unsigned k = (unsigned)(next_random() % keys);
        char key[32];
        size_t n = make_key(k, key);
        unsigned what = (unsigned)(next_random() % 8);
        if (what < 4) {
            void *value = &values[next_random() % sizeof(values)];
            int expected = model[k] != NULL || m.len < max_entries ? 0 : LTN_ERR_COUNT;
            assert_int_equal(ltn_map_put(&m, key, n, value), expected);
            model[k] = expected == 0 ? value : NULL;
        } else if (what < 7) {
            assert_ptr_equal(ltn_map_del(&m, key, n), model[k]);
            model[k] = NULL;
        } else {
            assert_ptr_equal(ltn_map_get(&m, key, n), model[k]);
        }
        if (i % 61 == 0) {
            check_against(&m, model, keys);
        }
    }
    check_against(&m, model, keys);
    ltn_map_done(&m, NULL);
}

static void behaves_as_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        run_model(seed * 0x9e3779b97f4a7c15ULL, 14, 12, 1500);  /* one small, crowded table */
        run_model(seed * 0x9e3779b97f4a7c15ULL, 40, 100, 1500); /* grows and shrinks */
    }
    run_model(0xfeedULL, MAX_KEYS, 300, 20000);
}

/* Keys chosen to collide in one map must not collide in the next. */
static void each_map_has_a_seed_of_its_own(void **state)
{
    (void)state;
    struct ltn_map a;
    struct ltn_map b;
    struct ltn_map c;
    ltn_map_init(&a, 1);
    ltn_map_init(&b, 1);
    ltn_map_init(&c, 1);
    assert_true(a.seed != b.seed || b.seed != c.seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_and_numbers),
        cmocka_unit_test(keys_are_copied),
        cmocka_unit_test(the_ceiling_holds),
        cmocka_unit_test(done_frees_values_and_allows_reuse),
        cmocka_unit_test(next_visits_each_value_once),
        cmocka_unit_test(behaves_as_the_model),
        cmocka_unit_test(each_map_has_a_seed_of_its_own),
    };
    return LTN_RUN_TESTS(tests);
}
