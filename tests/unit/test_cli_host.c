/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "cli/bundle.h"
#include "cli/host.h"
#include "cli/scenario.h"
#include "cli/table.h"
#include "drop_tree.h"

static char dir[32];

static int make_dir(void **state)
{
    char path[64];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-host-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/pressure", dir);
    return mkdir(path, 0700);
}

static int drop_dir(void **state)
{
    (void)state;
    return ltn_drop_tree(dir);
}

static void put(const char *name, const char *text)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Widest line in characters. */
static size_t widest(const char *s)
{
    size_t width = 0;
    size_t most = 0;
    for (; *s != '\0'; s++) {
        if (*s == '\n') {
            width = 0;
        } else if (((unsigned char)*s & 0xc0) != 0x80) {
            width++;
        }
        most = width > most ? width : most;
    }
    return most;
}

static void the_machine_is_read(void **state)
{
    (void)state;
    struct ltn_host_sampler s = {.proc = dir};
    struct ltn_host h;
    put("loadavg", "3.25 2.00 1.00 4/152 10516\n");
    put("meminfo", "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  250 kB\n");
    put("stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
    put("pressure/cpu", "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\n");
    put("pressure/memory", "some avg10=x");
    ltn_host_sample(&s, &h);
    assert_true(h.cpu_busy < 0);
    assert_true(h.load1 == 3.25);
    assert_int_equal(h.memory_total_bytes, 1024000);
    assert_int_equal(h.memory_available_bytes, 256000);
    assert_true(h.pressure_cpu == 0.125);
    assert_true(h.pressure_memory < 0 && h.pressure_io < 0);
    put("stat", "cpu  150 0 125 720 105 0 0 0 0 0\n");
    ltn_host_sample(&s, &h);
    assert_true(h.cpu_busy == 0.75);
    struct ltn_buf out;
    ltn_buf_init(&out, 1 << 16);
    ltn_host_table(&out, &h, "", "");
    assert_non_null(strstr(ltn_buf_str(&out), "CPU    [████████░░]  75%"));
    assert_non_null(strstr(ltn_buf_str(&out), "memory [████████░░]  75%"));
    assert_non_null(strstr(ltn_buf_str(&out), "load 3.2"));
    assert_non_null(strstr(ltn_buf_str(&out), "cpu 12%   memory -"));
    assert_true(widest(ltn_buf_str(&out)) <= 80);
    ltn_buf_done(&out);
}

static void nonsense_is_unknown(void **state)
{
    (void)state;
    struct ltn_host_sampler s = {.proc = "/nonexistent"};
    struct ltn_host h;
    struct ltn_buf out;
    ltn_host_sample(&s, &h);
    assert_true(h.cpu_busy < 0 && h.load1 < 0 && h.pressure_cpu < 0);
    assert_int_equal(h.memory_total_bytes, 0);
    put("meminfo", "MemTotal: -5 kB\nMemAvailable: 1e300 kB\n");
    put("loadavg", "nan");
    put("stat", "intr 5");
    s.proc = dir;
    ltn_host_sample(&s, &h);
    assert_true(h.cpu_busy < 0 && h.load1 < 0);
    assert_int_equal(h.memory_total_bytes, 0);
    ltn_buf_init(&out, 1 << 16);
    ltn_host_table(&out, &h, "", "");
    assert_true(widest(ltn_buf_str(&out)) <= 80);
    ltn_buf_done(&out);
}

static void a_state_is_kept_when_it_moves_or_is_due(void **state)
{
    (void)state;
    struct ltn_host_keeper k = {0};
    struct ltn_host h = {.cpus = 4,
                         .cpu_busy = 0.5,
                         .load1 = 2,
                         .memory_total_bytes = 1000,
                         .memory_available_bytes = 500,
                         .pressure_cpu = -1};
    assert_true(ltn_host_is_due(&k, &h, 1000, 0.02, 600)); /* the first one always */
    assert_false(ltn_host_is_due(&k, &h, 1010, 0.02, 600));
    h.cpu_busy = 0.515;
    assert_false(ltn_host_is_due(&k, &h, 1020, 0.02, 600));
    h.cpu_busy = 0.525; /* from the one kept, not from the last one seen */
    assert_true(ltn_host_is_due(&k, &h, 1030, 0.02, 600));
    h.load1 = 2.07; /* of 4 CPUs */
    assert_false(ltn_host_is_due(&k, &h, 1040, 0.02, 600));
    h.memory_available_bytes = 479;
    assert_true(ltn_host_is_due(&k, &h, 1050, 0.02, 600));
    h.pressure_cpu = 0.9; /* was not known */
    assert_false(ltn_host_is_due(&k, &h, 1060, 0.02, 600));
    assert_false(ltn_host_is_due(&k, &h, 1649, 0.02, 600));
    assert_true(ltn_host_is_due(&k, &h, 1650, 0.02, 600));
    assert_true(ltn_host_is_due(&k, &h, 1651, 0.0, 600));
}

static void tables_fit_into_80_columns(void **state)
{
    (void)state;
    struct ltn_host_sampler s = {0};
    struct ltn_host h;
    ltn_host_sample(&s, &h);
    for (int i = 0; i < LTN_SCENARIOS; i++) {
        struct ltn_buf out;
        struct ltn_window *w =
            ltn_scenario_window((enum ltn_scenario)i, 15, 1700000000000000000ULL);
        assert_non_null(w);
        ltn_buf_init(&out, 1 << 20);
        w->host.has_state = true;
        w->host.state = h;
        ltn_table_window(&out, w, "a-node-with-quite-a-long-name", false);
        assert_int_equal(ltn_buf_error(&out), 0);
        if (widest(ltn_buf_str(&out)) > 80) {
            fail_msg("too wide:\n%s", ltn_buf_str(&out));
        }
        static const char *const sections[] = {"System context", "CUDA Runtime", "NCCL", "Ranks"};
        for (size_t k = 0; k < LTN_ARRAY_SIZE(sections); k++) {
            assert_non_null(strstr(ltn_buf_str(&out), sections[k]));
        }
        ltn_buf_done(&out);
        ltn_window_free(w);
    }
}

static void expect_redacted(const char *in, const char *want)
{
    struct ltn_buf out;
    ltn_buf_init(&out, 1 << 16);
    ltn_bundle_redact(&out, in, strlen(in));
    assert_string_equal(ltn_buf_str(&out), want);
    ltn_buf_done(&out);
}

static void secrets_are_removed(void **state)
{
    (void)state;
    expect_redacted("collector: http://me:pw@host:4317/x",
                    "collector: http://[removed]@host:4317/x");
    expect_redacted("http://host/a@b", "http://host/a@b");
    expect_redacted("token_file: /etc/t\n", "token_file: /etc/t\n");
    expect_redacted("token: abc\nnext", "token: [removed]\nnext");
    expect_redacted("{\"password\": \"x y\", \"n\":1}", "{\"password\": \"[removed] y\", \"n\":1}");
    expect_redacted("Authorization: Bearer abc.def\n", "Authorization: [removed]\n");
    expect_redacted("Bearer abc", "Bearer [removed]");
    expect_redacted("API_KEY=zzz", "API_KEY=[removed]");
    expect_redacted("", "");
    expect_redacted("//", "//");
    expect_redacted("token", "token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_machine_is_read, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(nonsense_is_unknown, make_dir, drop_dir),
        cmocka_unit_test(a_state_is_kept_when_it_moves_or_is_due),
        cmocka_unit_test(tables_fit_into_80_columns),
        cmocka_unit_test(secrets_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
