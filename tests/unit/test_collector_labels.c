/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes as labels: collisions, kinds of values, scopes, exemplars, hostile text. */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "ingest/labels.h"

static struct ltn_buf out;

static const char *point(const struct ltn_otlp_attr *a, size_t n, bool agent)
{
    ltn_buf_reset(&out);
    ltn_labels_put_point(&out, (struct ltn_otlp_attrs){a, n}, agent);
    return ltn_buf_str(&out);
}

static void names_and_collisions(void **state)
{
    (void)state;
    const struct ltn_otlp_attr a[] = {
        ltn_otlp_attr_str("zeta", "1"),        ltn_otlp_attr_str("a_b", "under"),
        ltn_otlp_attr_str("a.b", "dot"),       ltn_otlp_attr_str("a b", "blank"),
        ltn_otlp_attr_str("job", "mine"),      ltn_otlp_attr_str("instance", "here"),
        ltn_otlp_attr_str("le", "0.5"),        ltn_otlp_attr_str("quantile", "0.9"),
        ltn_otlp_attr_str("process.pid", "7"), ltn_otlp_attr_str("otel.scope.name", "forged"),
        ltn_otlp_attr_str("", "nothing"),      ltn_otlp_attr_str("__name__", "forged"),
        ltn_otlp_attr_str("1st", "x")};
    const char *want = "_name_=\"forged\",a_b=\"blank;dot;under\",exported_instance=\"here\","
                       "exported_job=\"mine\",exported_le=\"0.5\",exported_quantile=\"0.9\","
                       "key_1st=\"x\",zeta=\"1\"";
    assert_string_equal(point(a, LTN_ARRAY_SIZE(a), false), want);
    /* The order of the attributes makes no difference. */
    struct ltn_otlp_attr turned[LTN_ARRAY_SIZE(a)];
    for (size_t i = 0; i < LTN_ARRAY_SIZE(a); i++)
        turned[i] = a[LTN_ARRAY_SIZE(a) - 1 - i];
    assert_string_equal(point(turned, LTN_ARRAY_SIZE(a), false), want);
}

static void the_agents_node_is_its_own(void **state)
{
    (void)state;
    const struct ltn_otlp_attr a = ltn_otlp_attr_str("node", "other");
    assert_string_equal(point(&a, 1, true), "exported_node=\"other\"");
    assert_string_equal(point(&a, 1, false), "node=\"other\"");
}

static void values(void **state)
{
    (void)state;
    /* ArrayValue{"x", 1} and bytes, as they come from the wire */
    static const char array[] = "\x0a\x03\x0a\x01x\x0a\x02\x18\x01";
    const struct ltn_otlp_attr a[] = {
        {.key = ltn_otlp_str("a"),
         .value = {.type = LTN_OTLP_ARRAY, .str = {array, sizeof(array) - 1}}},
        {.key = ltn_otlp_str("b"), .value = {.type = LTN_OTLP_BYTES, .str = {"\x00\x01\x02", 3}}},
        ltn_otlp_attr_int("c", -5),
        ltn_otlp_attr_bool("d", true),
        ltn_otlp_attr_double("e", 0.5),
        {.key = ltn_otlp_str("f"), .value = {.type = LTN_OTLP_NONE}},
        ltn_otlp_attr_str("g", "say \"hi\" \\ \xff \xc0\xa7 \n end"),
        {.key = ltn_otlp_str("h"), .value = {.type = LTN_OTLP_KVLIST, .str = {NULL, 0}}},
    };
    assert_string_equal(point(a, LTN_ARRAY_SIZE(a), false),
                        "a=\"[\\\"x\\\",1]\",b=\"AAEC\",c=\"-5\",d=\"true\",e=\"0.5\",f=\"\","
                        "g=\"say \\\"hi\\\" \\\\ ? ?? ? end\",h=\"{}\"");
}

static void scopes(void **state)
{
    (void)state;
    const struct ltn_otlp_attr a[] = {
        ltn_otlp_attr_str("name", "forged"), ltn_otlp_attr_str("job", "x"),
        ltn_otlp_attr_str("short.version", "2"), ltn_otlp_attr_str("schema.url", "forged")};
    struct ltn_otlp_group g = {.scope_name = ltn_otlp_str("lib"),
                               .scope_version = ltn_otlp_str("1.2"),
                               .scope_schema_url = ltn_otlp_str("https://s/1"),
                               .scope_attrs = {a, LTN_ARRAY_SIZE(a)}};
    ltn_buf_reset(&out);
    ltn_labels_put_scope(&out, &g);
    assert_string_equal(ltn_buf_str(&out),
                        "otel_scope_job=\"x\",otel_scope_name=\"lib\","
                        "otel_scope_schema_url=\"https://s/1\",otel_scope_short_version=\"2\","
                        "otel_scope_version=\"1.2\"");
    g = (struct ltn_otlp_group){.scope_name = ltn_otlp_str("lib")};
    ltn_labels_put_scope(&out, &g);
    assert_non_null(strstr(ltn_buf_str(&out), "\",otel_scope_name=\"lib\""));
}

static void exemplars(void **state)
{
    (void)state;
    char longest[65], over[70];
    memset(longest, 'x', sizeof(longest));
    memset(over, 'y', sizeof(over));
    longest[64] = over[69] = '\0';
    const struct ltn_otlp_attr a[] = {ltn_otlp_attr_str("over", over),
                                      ltn_otlp_attr_str("trace.id", "forged"),
                                      ltn_otlp_attr_str("k", longest)};
    struct ltn_otlp_exemplar e = {.trace_id = {"0123456789abcdef", 16},
                                  .span_id = {"\x00\x01\x02\x03\x04\x05\x06\xff", 8},
                                  .attrs = {a, 3}};
    char want[512];
    /* 40 + 23 code points of ids leave 65: one of 1 + 64 fits, none is left then */
    (void)snprintf(want, sizeof(want),
                   "trace_id=\"30313233343536373839616263646566\",span_id=\"00010203040506ff\","
                   "k=\"%s\"",
                   longest);
    ltn_buf_reset(&out);
    ltn_labels_put_exemplar(&out, &e);
    assert_string_equal(ltn_buf_str(&out), want);
    ltn_buf_reset(&out);
    e = (struct ltn_otlp_exemplar){.value = 1};
    ltn_labels_put_exemplar(&out, &e);
    assert_string_equal(ltn_buf_str(&out), "");
}

static void too_much(void **state)
{
    (void)state;
    static struct ltn_otlp_attr many[1000];
    static char value[5000];
    memset(value, 'v', sizeof(value) - 1);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(many); i++)
        many[i] = ltn_otlp_attr_str("same", value);
    ltn_buf_reset(&out);
    ltn_labels_put_point(&out, (struct ltn_otlp_attrs){many, 1000}, false);
    assert_int_equal(ltn_buf_error(&out), 0);
    assert_true(out.len < 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_collisions),
        cmocka_unit_test(the_agents_node_is_its_own),
        cmocka_unit_test(values),
        cmocka_unit_test(scopes),
        cmocka_unit_test(exemplars),
        cmocka_unit_test(too_much),
    };
    ltn_buf_init(&out, 65536);
    int rc = LTN_RUN_TESTS(tests);
    ltn_buf_done(&out);
    return rc;
}
