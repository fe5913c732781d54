/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmocka_all.h"

#define PER_MINUTE 20

/* Runs body with stderr in a temporary file and puts what it wrote into out. */
static void capture(void (*body)(void *), void *arg, char *out, size_t size)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    (void)fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
    body(arg);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    ssize_t n = pread(fileno(f), out, size - 1, 0);
    assert_true(n >= 0);
    out[n] = '\0';
    (void)fclose(f);
}

static unsigned count_lines(const char *text)
{
    unsigned n = 0;
    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

struct burst {
    struct ltn_log_site *site;
    unsigned lines;
};

static void write_burst(void *arg)
{
    struct burst *b = arg;
    for (unsigned i = 0; i < b->lines; i++) {
        ltn_log_write(b->site, LTN_LOG_WARN, "line %u", i);
    }
}

static uint64_t minute_now(void)
{
    return ltn_now_mono_ns() / (60 * LTN_NS_PER_S);
}

static void a_site_is_limited_and_says_so(void **state)
{
    (void)state;
    static char out[65536];
    struct ltn_log_site site;
    struct burst b = {.site = &site, .lines = PER_MINUTE + 15};
    uint64_t before;
    do { /* again where a minute ended in between */
        memset(&site, 0, sizeof(site));
        before = minute_now();
        capture(write_burst, &b, out, sizeof(out));
    } while (minute_now() != before);
    assert_int_equal(count_lines(out), PER_MINUTE);
    assert_null(strstr(out, "held_back"));
    assert_non_null(strstr(out, "level=warn msg=\"line 19\"\n"));

    atomic_store(&site.minute, 1); /* the next minute comes */
    b.lines = 2;
    capture(write_burst, &b, out, sizeof(out));
    assert_int_equal(count_lines(out), 2);
    const char *said = strstr(out, "msg=\"line 0\" held_back=15\n");
    assert_non_null(said);
    assert_null(strstr(strchr(said, '\n'), "held_back"));
}

static void write_two_sites(void *arg)
{
    (void)arg;
    for (int i = 0; i < PER_MINUTE; i++) {
        ltn_log_error("first");
        ltn_log_info("second");
    }
}

static void sites_do_not_share_a_limit(void **state)
{
    (void)state;
    static char out[65536];
    capture(write_two_sites, NULL, out, sizeof(out));
    assert_int_equal(count_lines(out), 2 * PER_MINUTE);
}

static void write_levels(void *arg)
{
    (void)arg;
    ltn_log_set_level(LTN_LOG_WARN);
    ltn_log_error("e1");
    ltn_log_warn("w1");
    ltn_log_info("i1");
    ltn_log_debug("d1");
    ltn_log_set_level(LTN_LOG_DEBUG);
    ltn_log_debug("d2");
    ltn_log_set_level(LTN_LOG_INFO);
    ltn_log_debug("d3");
}

static void levels_are_obeyed(void **state)
{
    (void)state;
    char out[4096];
    capture(write_levels, NULL, out, sizeof(out));
    assert_int_equal(count_lines(out), 3);
    assert_non_null(strstr(out, "level=error msg=\"e1\""));
    assert_non_null(strstr(out, "level=warn msg=\"w1\""));
    assert_non_null(strstr(out, "level=debug msg=\"d2\""));
}

static void write_hostile(void *arg)
{
    (void)arg;
    char text[3000];
    memset(text, '"', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ltn_log_info("%s", "a\nlevel=error msg=\"forged\"\r\x1b[2J\\");
    ltn_log_info("%s", text);
}

static void a_message_cannot_forge_a_line(void **state)
{
    (void)state;
    char out[8192];
    capture(write_hostile, NULL, out, sizeof(out));
    assert_int_equal(count_lines(out), 2);
    assert_non_null(strstr(out, "msg=\"a level=error msg=\\\"forged\\\"  [2J\\\\\"\n"));
    assert_true(strlen(out) < 2400);
    const char *second = strchr(out, '\n') + 1;
    const char *end = second + strlen(second);
    assert_true(strncmp(second, "time=", 5) == 0);
    /* The closing quote is a real one: an even number of backslashes stands before it. */
    assert_int_equal(end[-1], '\n');
    assert_int_equal(end[-2], '"');
    unsigned slashes = 0;
    while (end[-3 - (ptrdiff_t)slashes] == '\\') {
        slashes++;
    }
    assert_int_equal(slashes % 2, 0);
}

static void level_names_parse(void **state)
{
    (void)state;
    enum ltn_log_level level = LTN_LOG_DEBUG;
    assert_true(ltn_log_parse_level("error", &level));
    assert_int_equal(level, LTN_LOG_ERROR);
    assert_true(ltn_log_parse_level("debug", &level));
    assert_int_equal(level, LTN_LOG_DEBUG);
    assert_false(ltn_log_parse_level("Error", &level));
    assert_false(ltn_log_parse_level("", &level));
    assert_int_equal(level, LTN_LOG_DEBUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_limited_and_says_so),
        cmocka_unit_test(sites_do_not_share_a_limit),
        cmocka_unit_test(levels_are_obeyed),
        cmocka_unit_test(a_message_cannot_forge_a_line),
        cmocka_unit_test(level_names_parse),
    };
    return LTN_RUN_TESTS(tests);
}
