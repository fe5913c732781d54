/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "access/access.h"
#include "access/tokens.h"
#include "http/tls.h"

static char path[] = "/tmp/ltn-tokens-XXXXXX";

static void put(const char *text, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int load(struct ltn_tokens *t, const char *text, struct ltn_errinfo *info)
{
    put(text, strlen(text));
    return ltn_tokens_load(t, path, info);
}

/* "-": not known, "*": every cluster. */
static const char *cluster(const struct ltn_tokens *t, const char *token)
{
    const char *found = NULL;
    if (!ltn_tokens_find(t, token, &found)) {
        return "-";
    }
    return found != NULL ? found : "*";
}

static void lines_are_read(void **state)
{
    (void)state;
    struct ltn_tokens *t = ltn_tokens_new();
    assert_string_equal(cluster(t, ""), "-");
    assert_int_equal(load(t, "# c t\n\n \t \nplain\r\nblue b1\n  blue\tb2  \n* any\nred r", NULL),
                     0);
    assert_int_equal(ltn_tokens_count(t), 5);
    static const char *const want[][2] = {
        {"plain", "*"}, {"b1", "blue"}, {"b2", "blue"},   {"any", "*"}, {"r", "red"}, {"blue", "-"},
        {"b", "-"},     {"b1 ", "-"},   {"blue b1", "-"}, {"*", "-"},   {"#", "-"},   {"", "-"}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(want); i++) {
        assert_string_equal(cluster(t, want[i][0]), want[i][1]);
    }
    ltn_tokens_free(t);
}

static void what_is_wrong_leaves_the_old(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "no token"},
        {"#x\n\n", "no token"},
        {"a b c", "line 1"},
        {"new\nblue t\nred t\n", "line 3"},
    };
    struct ltn_tokens *t = ltn_tokens_new();
    assert_int_equal(load(t, "blue old\n", NULL), 0);
    const char *name = cluster(t, "old");
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct ltn_errinfo info = {0};
        assert_int_equal(load(t, cases[i].text, &info), LTN_ERR_CONFIG);
        assert_non_null(strstr(info.msg, cases[i].why));
        assert_string_equal(cluster(t, "old"), "blue");
        assert_string_equal(cluster(t, "new"), "-");
    }
    put("a\0b\n", 4);
    assert_int_equal(ltn_tokens_load(t, path, NULL), LTN_ERR_CONFIG);
    assert_true(ltn_tokens_load(t, "/nowhere/tokens", NULL) < 0);
    /* The same line twice is no contradiction; names stay valid over reloads. */
    assert_int_equal(load(t, "green new\ngreen new\nblue newer\n", NULL), 0);
    assert_string_equal(cluster(t, "old"), "-");
    assert_string_equal(cluster(t, "new"), "green");
    assert_ptr_equal(cluster(t, "newer"), name);
    ltn_tokens_free(t);
}

static void too_many_are_refused(void **state)
{
    (void)state;
    struct ltn_tokens *t = ltn_tokens_new();
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < LTN_TOKENS_MAX; i++) {
        (void)fprintf(f, "c%d t%d\n", i % 100, i);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(ltn_tokens_load(t, path, NULL), 0);
    assert_string_equal(cluster(t, "t4095"), "c95");
    f = fopen(path, "a");
    assert_non_null(f);
    (void)fprintf(f, "c t%d\n", LTN_TOKENS_MAX);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(ltn_tokens_load(t, path, NULL), LTN_ERR_CONFIG);
    assert_string_equal(cluster(t, "t4095"), "c95");
    ltn_tokens_free(t);
}

static void names_fit_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool fits;
    } cases[] = {
        {"DNS:a.example", "DNS:a.example", true},
        {"DNS:a.example", "DNS:A.EXAMPLE", true},
        {"DNS:*.example", "DNS:a.b.example", true},
        {"DNS:*.example", "DNS:example", false},
        {"DNS:*.example", "DNS:a.example.evil", false},
        {"DNS:a*b*c", "DNS:a-bb-bc", true},
        {"DNS:a*b*c", "DNS:a-cc", false},
        {"DNS:*", "URI:x", false},
        {"URI:*", "URI:x", true},
        {"URI:spiffe://A/x", "URI:spiffe://a/x", false},
        {"URI:spiffe://t/agent/*", "URI:spiffe://t/agent/n1", true},
        {"URI:spiffe://t/agent/*", "URI:spiffe://t/agents", false},
        {"DNS:a", "CN:a", false},
        {"nonsense", "nonsense", false},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        if (ltn_tls_name_fits(cases[i].pattern, cases[i].name) != cases[i].fits) {
            fail_msg("%s against %s", cases[i].pattern, cases[i].name);
        }
    }
}

static void patterns_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"example", "DNS:", "IP:10.0.0.1"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        struct ltn_errinfo info = {0};
        struct ltn_tls_server *t = NULL;
        const struct ltn_tls_server_conf c = {.cert_file = "/nowhere",
                                              .key_file = "/nowhere",
                                              .client_ca_file = "/nowhere",
                                              .allow = &bad[i],
                                              .allow_count = 1};
        assert_int_equal(ltn_tls_server_new(&c, &t, &info), LTN_ERR_CONFIG);
        assert_non_null(strstr(info.msg, "DNS:NAME or URI:NAME"));
    }
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0) {
        return 1;
    }
    (void)close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read),       cmocka_unit_test(what_is_wrong_leaves_the_old),
        cmocka_unit_test(too_many_are_refused), cmocka_unit_test(names_fit_patterns),
        cmocka_unit_test(patterns_are_checked),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return rc;
}
