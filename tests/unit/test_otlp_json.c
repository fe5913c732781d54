/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP/JSON: what is refused, which texts mean the same, numbers, text, limits, golden documents.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/attr.h"
#include "base/err.h"
#include "base/text.h"
#include "otlp/json_lex.h"
#include "otlp/json_read.h"
#include "otlp_dump.h"
#include "otlp_gen.h"

#define DEPTH 32

static int read_n(enum ltn_otlp_signal signal, const char *text, size_t n, struct ltn_buf *out)
{
    struct ltn_otlp_json_info info;
    /* A heap copy of just that size, so that reads beyond it are found. */
    char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    ltn_buf_reset(out);
    int rc = ltn_otlp_json_read(signal, copy, n, DEPTH, out, &info);
    assert_true(info.error_at <= n);
    free(copy);
    return rc;
}

static int read_text(enum ltn_otlp_signal signal, const char *text, struct ltn_buf *out)
{
    return read_n(signal, text, strlen(text), out);
}

/* A request of one point, or one log, with these members. */
#define POINT(members)                                                                             \
    "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"name\":\"m\",\"gauge\":{"           \
    "\"dataPoints\":[{" members "}]}}]}]}]}"
#define HISTOGRAM(members)                                                                         \
    "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"name\":\"m\",\"histogram\":{"       \
    "\"dataPoints\":[{" members "}]}}]}]}]}"
#define ATTR(value)  POINT("\"attributes\":[{\"key\":\"k\",\"value\":" value "}]")
#define LOG(members) "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{" members "}]}]}]}"

static void test_refused_syntax(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[]",
        "null",
        "0",
        "\"\"",
        "{",
        "{}}",
        "{}{}",
        "{},",
        "{} x",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1 2]}",
        "{\"a\":[1}",
        "{\"a\":{]}",
        "{\"a\":tru}",
        "{\"a\":True}",
        "{\"a\":nul}",
        "{\"a\":nulll}",
        "{\"a\":01}",
        "{\"a\":-}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1.e1}",
        "{\"a\":1e}",
        "{\"a\":1e+}",
        "{\"a\":0x1}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"tab\there\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"",
        "{\"a",
        "{\"a\":\"\\",
        "\xef\xbb{}",
        "{\"a\":/* no */1}",
        "\v{}",
        "{\"a\":1}\f",
        "{\"resourceMetrics\":{}}",
        "{\"resourceMetrics\":[null]}",
        "{\"resourceMetrics\":[1]}",
        "{\"resourceMetrics\":[[]]}",
        "{\"resourceMetrics\":[{},]}",
        "{\"resourceMetrics\":[,{}]}",
        "{\"resourceMetrics\":[{} {}]}",
        "{\"resourceMetrics\":[{}}",
        "{\"resourceMetrics\":[{}]",
        "{\"resourceMetrics\":[{\"resource\":[]}]}",
        "{\"resourceMetrics\":[{\"resource\":1}]}",
        "{\"resourceMetrics\":[{\"schemaUrl\":1}]}",
        "{\"resourceMetrics\":[{\"schemaUrl\":{}}]}",
    };
    struct ltn_buf out;
    ltn_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(texts); i++) {
        int rc = read_text(LTN_OTLP_METRICS, texts[i], &out);
        if (rc != LTN_ERR_MALFORMED) {
            fail_msg("%d for %s", rc, texts[i]);
        }
    }
    assert_int_equal(read_n(LTN_OTLP_METRICS, "{}\0", 3, &out), LTN_ERR_MALFORMED);
    assert_int_equal(read_n(LTN_OTLP_METRICS, "\0", 1, &out), LTN_ERR_MALFORMED);
    ltn_buf_done(&out);
}

static void test_refused_values(void **state)
{
    (void)state;
    static const char *const metrics[] = {
        POINT("\"timeUnixNano\":-1"),
        POINT("\"timeUnixNano\":\"-1\""),
        POINT("\"timeUnixNano\":\"\""),
        POINT("\"timeUnixNano\":18446744073709551616"),
        POINT("\"timeUnixNano\":\"18446744073709551616\""),
        POINT("\"timeUnixNano\":1e20"),
        POINT("\"timeUnixNano\":1.5"),
        POINT("\"timeUnixNano\":\"1 \""),
        POINT("\"timeUnixNano\":\" 1\""),
        POINT("\"timeUnixNano\":\"0x10\""),
        POINT("\"timeUnixNano\":\"01\""),
        POINT("\"timeUnixNano\":true"),
        POINT("\"timeUnixNano\":[1]"),
        POINT("\"timeUnixNano\":{}"),
        POINT("\"asInt\":9223372036854775808"),
        POINT("\"asInt\":\"-9223372036854775809\""),
        POINT("\"asInt\":0.1"),
        POINT("\"asInt\":\"NaN\""),
        POINT("\"asDouble\":1e400"),
        POINT("\"asDouble\":-1.8e308"),
        POINT("\"asDouble\":\"1e400\""),
        POINT("\"asDouble\":\"nan\""),
        POINT("\"asDouble\":\"+Infinity\""),
        POINT("\"asDouble\":\"\""),
        POINT("\"asDouble\":false"),
        POINT("\"flags\":4294967296"),
        POINT("\"flags\":-1"),
        POINT("\"attributes\":{}"),
        POINT("\"attributes\":[null]"),
        POINT("\"attributes\":[{\"key\":1}]"),
        ATTR("\"text\""),
        ATTR("{\"boolValue\":\"true\"}"),
        ATTR("{\"boolValue\":1}"),
        ATTR("{\"stringValue\":1}"),
        ATTR("{\"bytesValue\":\"a\"}"),
        ATTR("{\"bytesValue\":\"ab==c\"}"),
        ATTR("{\"bytesValue\":\"ab=\"}"),
        ATTR("{\"bytesValue\":\"a b=\"}"),
        ATTR("{\"bytesValue\":\"====\"}"),
        ATTR("{\"arrayValue\":[]}"),
        ATTR("{\"arrayValue\":{\"values\":{}}}"),
        HISTOGRAM("\"bucketCounts\":1"),
        HISTOGRAM("\"bucketCounts\":[1,]"),
        HISTOGRAM("\"bucketCounts\":[,]"),
        HISTOGRAM("\"bucketCounts\":[1 2]"),
        HISTOGRAM("\"bucketCounts\":[null]"),
        HISTOGRAM("\"bucketCounts\":[[1]]"),
        HISTOGRAM("\"bucketCounts\":[1"),
        HISTOGRAM("\"bucketCounts\":[-1]"),
        HISTOGRAM("\"explicitBounds\":[\"x\"]"),
        "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"sum\":"
        "{\"aggregationTemporality\":\"AGGREGATION_TEMPORALITY_DELTA\"}}]}]}]}",
        "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"sum\":"
        "{\"aggregationTemporality\":\"1\"}}]}]}]}",
    };
    static const char *const logs[] = {
        LOG("\"severityNumber\":\"SEVERITY_NUMBER_INFO\""),
        LOG("\"severityNumber\":2147483648"),
        LOG("\"traceId\":\"0\""),
        LOG("\"traceId\":\"zz\""),
        LOG("\"traceId\":\"5b8efff798038103d269b633813fc60\""),
        LOG("\"spanId\":\"eee19b7ec3c1b17=\""),
        LOG("\"traceId\":1"),
        LOG("\"body\":\"text\""),
        LOG("\"flags\":\"4294967296\""),
    };
    struct ltn_buf out;
    ltn_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(metrics) + LTN_ARRAY_SIZE(logs); i++) {
        bool is_log = i >= LTN_ARRAY_SIZE(metrics);
        const char *text = is_log ? logs[i - LTN_ARRAY_SIZE(metrics)] : metrics[i];
        int rc = read_text(is_log ? LTN_OTLP_LOGS : LTN_OTLP_METRICS, text, &out);
        if (rc != LTN_ERR_MALFORMED) {
            fail_msg("%d for %s", rc, text);
        }
    }
    ltn_buf_done(&out);
}

/* Both texts give the same bytes of protobuf. */
static void test_same(void **state)
{
    (void)state;
    static const struct {
        enum ltn_otlp_signal signal;
        const char *a, *b;
    } pairs[] = {
        {LTN_OTLP_METRICS, "", "{}"},
        {LTN_OTLP_METRICS, " \n", "{}"},
        {LTN_OTLP_METRICS, "\xef\xbb\xbf{}", "{ }"},
        {LTN_OTLP_METRICS, "{\"resource_metrics\":[{}],\"resourceLogs\":[{}]}", "{}"},
        {LTN_OTLP_METRICS, "{\"resourceMetrics\":null}", "{}"},
        {LTN_OTLP_METRICS, POINT("\"asInt\":\"12\""), POINT("\"asInt\":12")},
        {LTN_OTLP_METRICS, POINT("\"asInt\":1.2e1"), POINT("\"asInt\":\"12.0\"")},
        {LTN_OTLP_METRICS, POINT("\"asInt\":1200e-2"), POINT("\"asInt\":12")},
        {LTN_OTLP_METRICS, POINT("\"asInt\":\"1\\u0032\""), POINT("\"asInt\":12")},
        {LTN_OTLP_METRICS, POINT("\"asInt\":-0"), POINT("\"asInt\":0e999999999999")},
        {LTN_OTLP_METRICS, POINT("\"timeUnixNano\":\"-0\""), POINT("\"timeUnixNano\":0")},
        {LTN_OTLP_METRICS, POINT("\"asInt\":-9223372036854775808"),
         POINT("\"asInt\":\"-9.223372036854775808e18\"")},
        {LTN_OTLP_METRICS, POINT("\"timeUnixNano\":18446744073709551615"),
         POINT("\"timeUnixNano\":\"1844674407370955161500000e-5\"")},
        {LTN_OTLP_METRICS, POINT("\"asDouble\":1"), POINT("\"asDouble\":\"1.0\"")},
        {LTN_OTLP_METRICS, POINT("\"asDouble\":1e-400"), POINT("\"asDouble\":0")},
        {LTN_OTLP_METRICS, POINT("\"asDouble\":\"\\u004eaN\""), POINT("\"asDouble\":\"NaN\"")},
        {LTN_OTLP_METRICS, POINT("\"asDouble\":9007199254740993"),
         POINT("\"asDouble\":9007199254740992")},
        {LTN_OTLP_METRICS, POINT("\"asDouble\":9007199254740993.00000000000000000000000000001"),
         POINT("\"asDouble\":9007199254740994")},
        {LTN_OTLP_METRICS, POINT("\"as\\u0049nt\":3"), POINT("\"asInt\":3")},
        {LTN_OTLP_METRICS, POINT("\"AsInt\":3,\"asint\":4,\"as_int\":5,\"asInt \":6,\"asIn\":7"),
         POINT("")},
        {LTN_OTLP_METRICS, POINT("\"asInt\":3,\"asInt\":null"), POINT("\"asInt\":3")},
        {LTN_OTLP_METRICS, ATTR("{\"bytesValue\":\"-_8=\"}"), ATTR("{\"bytesValue\":\"+/8\"}")},
        {LTN_OTLP_METRICS, ATTR("{\"bytesValue\":\"\\/\\/8\"}"), ATTR("{\"bytesValue\":\"__8=\"}")},
        {LTN_OTLP_METRICS, ATTR("{\"stringValue\":\"\\ud83d\\ude80\"}"),
         ATTR("{\"stringValue\":\"\xf0\x9f\x9a\x80\"}")},
        {LTN_OTLP_METRICS, ATTR("{\"stringValue\":\"\\ud800\\u0041\\udc00\\ud800\"}"),
         ATTR("{\"stringValue\":\"\xed\xa0\x80"
              "A\xed\xb0\x80\xed\xa0\x80\"}")},
        {LTN_OTLP_METRICS, ATTR("{\"stringValue\":\"\\\"\\\\\\/\\u00e9\\u20AC\"}"),
         ATTR("{\"stringValue\":\"\\u0022\\u005c/\xc3\xa9\xe2\x82\xac\"}")},
        {LTN_OTLP_METRICS, ATTR("{\"stringValue\":\"\\b\\f\\n\\r\\t\"}"),
         ATTR("{\"stringValue\":\"\\u0008\\u000c\\u000a\\u000d\\u0009\"}")},
        {LTN_OTLP_METRICS, HISTOGRAM("\"bucketCounts\":[1,\"2\"]"),
         HISTOGRAM("\"bucketCounts\":[ 1e0 , 2 ]")},
        {LTN_OTLP_LOGS, LOG("\"traceId\":\"5B8EFFF798038103D269B633813FC60C\""),
         LOG("\"traceId\":\"5b8efff798038103d269b633813fc60c\"")},
        {LTN_OTLP_TRACES,
         "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"x\",\"kind\":1},{}]}]}]}",
         "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{},{\"status\":{}}]}]}]}"},
    };
    struct ltn_buf a, b;
    ltn_buf_init(&a, 1 << 20);
    ltn_buf_init(&b, 1 << 20);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(pairs); i++) {
        int rc_a = read_text(pairs[i].signal, pairs[i].a, &a);
        int rc_b = read_text(pairs[i].signal, pairs[i].b, &b);
        if (rc_a != 0 || rc_b != 0 || a.len != b.len || memcmp(a.data, b.data, a.len) != 0) {
            fail_msg("%d, %d: %s, %s", rc_a, rc_b, pairs[i].a, pairs[i].b);
        }
    }
    /* And different values differ. */
    assert_int_equal(read_text(LTN_OTLP_METRICS, POINT("\"asDouble\":-0"), &a), 0);
    assert_int_equal(read_text(LTN_OTLP_METRICS, POINT("\"asDouble\":0"), &b), 0);
    assert_true(a.len == b.len && memcmp(a.data, b.data, a.len) != 0);
    ltn_buf_done(&a);
    ltn_buf_done(&b);
}

/* Doubles are rounded as strtod rounds them, integers are exact. */
static void test_numbers(void **state)
{
    (void)state;
    struct otlp_rng rng = {42};
    for (unsigned i = 0; i < 200000; i++) {
        char text[64];
        struct ltn_jlex_num num;
        double got;
        uint64_t digits = otlp_rng_below(&rng, UINT64_MAX) >> otlp_rng_below(&rng, 64);
        if (i % 3 == 0) { /* digits of a real double */
            double d;
            uint64_t bits = otlp_rng_below(&rng, 0x7ff0000000000000ULL);
            memcpy(&d, &bits, sizeof(d));
            (void)snprintf(text, sizeof(text), "%.17g", d);
        } else if (i % 3 == 1) { /* near the middle of two doubles */
            (void)snprintf(text, sizeof(text), "%llu%s",
                           (unsigned long long)((digits >> 10 << 11) + 0x400),
                           i % 2 ? "" : ".0001");
        } else {
            (void)snprintf(text, sizeof(text), "%llu.%lluE%d", (unsigned long long)digits / 7,
                           (unsigned long long)digits, (int)otlp_rng_below(&rng, 80) - 40);
        }
        struct ltn_jlex lex = {(const uint8_t *)text, (const uint8_t *)text + strlen(text)};
        assert_int_equal(ltn_jlex_number(&lex, &num), 0);
        assert_ptr_equal(lex.p, lex.end);
        assert_true(ltn_jlex_f64(&num, &got));
        double want = strtod(text, NULL);
        if (memcmp(&got, &want, sizeof(got)) != 0) {
            fail_msg("%s: %a instead of %a", text, got, want);
        }
    }
}

static void test_long_number(void **state)
{
    (void)state;
    char text[LTN_JLEX_NUMBER_MAX + 64];
    struct ltn_jlex_num num;
    double d;
    uint64_t v;
    memset(text, '0', sizeof(text));
    text[0] = '1';
    struct ltn_jlex lex = {(const uint8_t *)text, (const uint8_t *)text + 1025};
    assert_int_equal(ltn_jlex_number(&lex, &num), LTN_ERR_MALFORMED);
    lex.end = lex.p + 1024;
    assert_int_equal(ltn_jlex_number(&lex, &num), 0);
    assert_false(ltn_jlex_f64(&num, &d));
    assert_false(ltn_jlex_int(&num, &v));
    text[1] = '.'; /* 1.00…01 */
    text[1023] = '1';
    lex = (struct ltn_jlex){(const uint8_t *)text, (const uint8_t *)text + 1024};
    assert_int_equal(ltn_jlex_number(&lex, &num), 0);
    assert_true(ltn_jlex_f64(&num, &d) && d == 1.0);
    assert_false(ltn_jlex_int(&num, &v));
}

/* n times open, middle, n times close. */
static void nest(struct ltn_buf *b, const char *head, const char *open, const char *middle,
                 const char *shut, unsigned n)
{
    ltn_buf_reset(b);
    assert_int_equal(ltn_buf_puts(b, head), 0);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(ltn_buf_puts(b, open), 0);
    }
    assert_int_equal(ltn_buf_puts(b, middle), 0);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(ltn_buf_puts(b, shut), 0);
    }
}

static void test_depth(void **state)
{
    (void)state;
    struct ltn_buf text, out;
    ltn_buf_init(&text, 1 << 24);
    ltn_buf_init(&out, 1 << 24);
    nest(&text, "{\"x\":", "[", "", "]", 2 * DEPTH - 1);
    assert_int_equal(ltn_buf_putc(&text, '}'), 0);
    assert_int_equal(read_n(LTN_OTLP_METRICS, text.data, text.len, &out), 0);
    nest(&text, "{\"x\":", "[", "", "]", 2 * DEPTH);
    assert_int_equal(ltn_buf_putc(&text, '}'), 0);
    assert_int_equal(read_n(LTN_OTLP_METRICS, text.data, text.len, &out), LTN_ERR_DEPTH);
    nest(&text, "{\"x\":", "{\"y\":[", "1", "]}", 100000);
    assert_int_equal(read_n(LTN_OTLP_METRICS, text.data, text.len, &out), LTN_ERR_DEPTH);
    nest(&text, "", "[", "", "]", 100000);
    assert_int_equal(read_n(LTN_OTLP_METRICS, text.data, text.len, &out), LTN_ERR_MALFORMED);
    static const char value[] = "{\"arrayValue\":{\"values\":[";
    nest(&text, "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{\"body\":", value, "{}",
         "]}}", 18);
    assert_int_equal(ltn_buf_puts(&text, "}]}]}]}"), 0);
    assert_int_equal(read_n(LTN_OTLP_LOGS, text.data, text.len, &out), 0);
    nest(&text, "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{\"body\":", value, "{}",
         "]}}", 5000);
    assert_int_equal(read_n(LTN_OTLP_LOGS, text.data, text.len, &out), LTN_ERR_DEPTH);
    ltn_buf_done(&text);
    ltn_buf_done(&out);
}

/* What the text becomes is at most four times its size, and the ceiling is kept. */
static void test_size(void **state)
{
    (void)state;
    struct ltn_buf text, out;
    struct ltn_otlp_json_info info;
    ltn_buf_init(&text, 1 << 24);
    ltn_buf_init(&out, 1 << 24);
    nest(&text,
         "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"histogram\":{"
         "\"dataPoints\":[{\"bucketCounts\":[0",
         ",0", "", "", 100000);
    assert_int_equal(ltn_buf_puts(&text, "]}]}}]}]}]}"), 0);
    assert_int_equal(read_n(LTN_OTLP_METRICS, text.data, text.len, &out), 0);
    assert_true(out.len > 800000 && out.len <= 4 * text.len);
    ltn_buf_done(&out);
    ltn_buf_init(&out, 100000);
    assert_int_equal(ltn_otlp_json_read(LTN_OTLP_METRICS, text.data, text.len, DEPTH, &out, &info),
                     LTN_ERR_TOO_LARGE);
    ltn_buf_reset(&out);
    assert_int_equal(ltn_otlp_json_read(LTN_OTLP_METRICS, "{}", 2, DEPTH, &out, &info), 0);
    ltn_buf_done(&text);
    ltn_buf_done(&out);
}

static void test_info(void **state)
{
    (void)state;
    static const char text[] = "{\"resource_metrics\":[],\"resourceMetrics\":[{\"x\":{\"y\":1}}]}";
    static const char wrong[] = "{\"resourceMetrics\":[{\"schemaUrl\":  7}]}";
    struct ltn_otlp_json_info info;
    struct ltn_buf out;
    ltn_buf_init(&out, 1 << 20);
    assert_int_equal(
        ltn_otlp_json_read(LTN_OTLP_METRICS, text, sizeof(text) - 1, DEPTH, &out, &info), 0);
    assert_int_equal(info.unknown, 2);
    assert_true(ltn_otlp_str_eq(info.unknown_name, "resource_metrics"));
    ltn_buf_reset(&out);
    assert_int_equal(
        ltn_otlp_json_read(LTN_OTLP_METRICS, wrong, sizeof(wrong) - 1, DEPTH, &out, &info),
        LTN_ERR_MALFORMED);
    assert_int_equal(info.error_at, strchr(wrong, '7') - wrong);
    ltn_buf_done(&out);
}

static void load(const char *name, struct ltn_buf *b)
{
    char path[512], part[4096];
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/otlp/%s", LTN_TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while ((n = fread(part, 1, sizeof(part), f)) > 0) {
        assert_int_equal(ltn_buf_append(b, part, n), 0);
    }
    (void)fclose(f);
}

/* The expectation is a text file: NUL, and what is no UTF-8, stand there as '~'. */
static void printable(struct ltn_buf *b)
{
    for (size_t i = 0; i < b->len;) {
        size_t n = ltn_utf8_len(b->data + i, b->len - i);
        if (n == 0 || b->data[i] == '\0') {
            b->data[i] = '~';
            n = 1;
        }
        i += n;
    }
}

static void golden(bool logs, const char *json, const char *expected)
{
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    struct ltn_buf text, want, wire, got;
    assert_non_null(r);
    ltn_buf_init(&text, 1 << 20);
    ltn_buf_init(&want, 1 << 20);
    ltn_buf_init(&wire, 1 << 20);
    ltn_buf_init(&got, 1 << 20);
    load(json, &text);
    load(expected, &want);
    enum ltn_otlp_signal signal = logs ? LTN_OTLP_LOGS : LTN_OTLP_METRICS;
    assert_int_equal(read_n(signal, text.data, text.len, &wire), 0);
    assert_int_equal(otlp_dump_ours(r, logs, &wire, &got), 0);
    printable(&got);
    if (got.len != want.len || memcmp(got.data, want.data, got.len) != 0) {
        (void)fprintf(stderr, "%s", got.data);
        fail_msg("%s gives the text above instead of %s", json, expected);
    }
    /* Cut anywhere, it is no document any more. */
    while (text.data[text.len - 1] == '\n') {
        text.len--;
    }
    for (size_t n = 1; n < text.len; n++) {
        if (read_n(signal, text.data, n, &wire) != LTN_ERR_MALFORMED) {
            fail_msg("%s is taken when cut after %zu bytes", json, n);
        }
    }
    ltn_buf_done(&text);
    ltn_buf_done(&want);
    ltn_buf_done(&wire);
    ltn_buf_done(&got);
    ltn_otlp_reader_free(r);
}

/* Whatever the ceiling, the output stays below it, and what fails fails as that. */
static void test_ceilings(void **state)
{
    (void)state;
    struct ltn_buf text, all;
    struct ltn_otlp_json_info info;
    ltn_buf_init(&text, 1 << 20);
    ltn_buf_init(&all, 1 << 20);
    load("metrics.json", &text);
    assert_int_equal(read_n(LTN_OTLP_METRICS, text.data, text.len, &all), 0);
    bool fits = false;
    for (size_t max = 0; max < all.len + 64; max++) {
        struct ltn_buf out;
        ltn_buf_init(&out, max);
        int rc = ltn_otlp_json_read(LTN_OTLP_METRICS, text.data, text.len, DEPTH, &out, &info);
        assert_true(out.len <= max);
        if (rc != LTN_ERR_TOO_LARGE) {
            assert_int_equal(rc, 0);
            assert_int_equal(out.len, all.len);
            assert_memory_equal(out.data, all.data, all.len);
            fits = true;
        }
        ltn_buf_done(&out);
    }
    assert_true(fits);
    ltn_buf_done(&text);
    ltn_buf_done(&all);
}

static void test_golden(void **state)
{
    (void)state;
    golden(false, "metrics.json", "metrics.txt");
    golden(true, "logs.json", "logs.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_syntax), cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_same),           cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_long_number),    cmocka_unit_test(test_depth),
        cmocka_unit_test(test_size),           cmocka_unit_test(test_info),
        cmocka_unit_test(test_ceilings),       cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests_name("otlp_json", tests, NULL, NULL);
}
