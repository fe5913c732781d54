/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "conf/command.h"
#include "conf/conf.h"

struct sample {
    bool record;
    bool no_io;
    uint64_t workers;
    double deadband;
    uint64_t max_age_ns;
    uint64_t max_db_bytes;
    char *endpoint;
    char *token_file;
    int walker;
    struct ltn_conf_strings pids;
    struct ltn_conf_strings libs;
};

static const char *const walkers[] = {"auto", "ebpf", "userspace", NULL};
#define AT(f) offsetof(struct sample, f)
static const struct ltn_conf_key keys[] = {
    {"record", LTN_CONF_BOOL, AT(record), "true", 0, 0, "Write.", 0, 0, NULL, NULL},
    {"no_io", LTN_CONF_BOOL, AT(no_io), NULL, 0, 0, "No block I/O.", 0, 0, NULL, NULL},
    {"workers", LTN_CONF_U64, AT(workers), "2", 1, 64, "Threads.", 'w', 0, NULL, NULL},
    {"deadband", LTN_CONF_DOUBLE, AT(deadband), "0.5", 0, 100, "Percent.", 0, 0, NULL, "PCT"},
    {"push.max_age", LTN_CONF_DURATION_NS, AT(max_age_ns), "1h30m", 1, 1e6, "Age.", 0, 0, NULL,
     NULL},
    {"push.endpoint", LTN_CONF_STRING, AT(endpoint), "", 0, 0, "Where to.", 0, 0, NULL, "URL"},
    {"max_db", LTN_CONF_SIZE_BYTES, AT(max_db_bytes), "10g", 0, 0, "Cap.", 0, 0, NULL, NULL},
    {"push.token_file", LTN_CONF_STRING, AT(token_file), NULL, 0, 0, "Token.", 0, 0, NULL, "FILE"},
    {"py_walker", LTN_CONF_ENUM, AT(walker), "auto", 0, 0, "How.", 0, 0, walkers, NULL},
    {"pid", LTN_CONF_STRINGS, AT(pids), NULL, 0, 0, "Which.", 'p', LTN_CONF_FLAG_ONLY, NULL, NULL},
    {"cuda_lib", LTN_CONF_STRINGS, AT(libs), NULL, 0, 0, "Libraries.", 0, 0, NULL, "PATH"},
};
static const struct ltn_conf_table table = {keys, LTN_ARRAY_SIZE(keys), "LANTERNE_"};

static void init(struct sample *s)
{
    struct ltn_errinfo info;
    assert_int_equal(ltn_conf_init(&table, s, &info), 0);
}

static void defaults_are_set(void **state)
{
    (void)state;
    struct sample s;
    init(&s);
    assert_true(s.record);
    assert_false(s.no_io);
    assert_int_equal(s.workers, 2);
    assert_true(s.deadband > 0.49 && s.deadband < 0.51);
    assert_int_equal(s.max_age_ns, 5400 * LTN_NS_PER_S);
    assert_int_equal(s.max_db_bytes, 10ULL << 30);
    assert_string_equal(s.endpoint, "");
    assert_int_equal(s.walker, 0);
    assert_int_equal(s.libs.n, 0);
    ltn_conf_done(&table, &s);
}

static int yaml(struct sample *s, const char *text, struct ltn_errinfo *info)
{
    return ltn_conf_load_yaml(&table, s, text, strlen(text), "test.yaml", info);
}

static void yaml_nested_dotted_and_lists(void **state)
{
    (void)state;
    struct sample s;
    struct ltn_errinfo info;
    init(&s);
    assert_int_equal(yaml(&s,
                          "# comment\npush:\n  endpoint: \"http://c:4317\"\n  max_age: 2m\n"
                          "workers: 8\nrecord: no\npy_walker: ebpf\n"
                          "cuda_lib:\n  - /a,b.so\n  - /c.so\npush.token_file: /t\nmax_db: ~\n",
                          &info),
                     0);
    assert_string_equal(s.endpoint, "http://c:4317");
    assert_string_equal(s.token_file, "/t");
    assert_int_equal(s.max_age_ns, 120 * LTN_NS_PER_S);
    assert_int_equal(s.workers, 8);
    assert_false(s.record);
    assert_int_equal(s.walker, 1);
    assert_int_equal(s.libs.n, 2);
    assert_string_equal(s.libs.items[0], "/a,b.so");
    assert_int_equal(s.max_db_bytes, 10ULL << 30);
    assert_int_equal(yaml(&s, "cuda_lib: /x, /y\n", &info), 0);
    assert_int_equal(s.libs.n, 2);
    assert_string_equal(s.libs.items[1], "/y");
    assert_int_equal(yaml(&s, "# nothing\n", &info), 0);
    ltn_conf_done(&table, &s);
}

static void yaml_mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"worker: 3\n", "workers"},
        {"push:\n  endpiont: x\n", "push.endpoint"},
        {"pusj:\n  endpoint: x\n", "mean \"push."},
        {"workers: many\n", "whole number"},
        {"workers: 65\n", "between 1 and 64"},
        {"push:\n  max_age: 0s\n", "between 1"},
        {"py_walker: kernel\n", "auto, ebpf, userspace"},
        {"record: maybe\n", "true or false"},
        {"workers: 1\nworkers: 2\n", "twice"},
        {"push: {endpoint: a}\npush.endpoint: b\n", "twice"},
        {"workers: &a 1\n", "anchors"},
        {"cuda_lib: &a [x]\n", "anchors"},
        {"workers: !!int 3\n", "tags"},
        {"a: *b\n", "test.yaml:1"},
        {"push: *b\n", "aliases"},
        {"workers: [1]\n", "not a list"},
        {"workers: {a: 1}\n", "not a mapping"},
        {"cuda_lib: [[x]]\n", "does not belong"},
        {"cuda_lib: [{x: 1}]\n", "does not belong"},
        {"- a\n", "does not belong"},
        {"just text\n", "not a mapping"},
        {"workers: 1\n---\nworkers: 2\n", "one document"},
        {"workers: \"1\n", "test.yaml:"},
        {"pid: 12\n", "unknown key"},
        {"? [a]\n: 1\n", "does not belong"},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct sample s;
        struct ltn_errinfo info = {0};
        init(&s);
        int rc = yaml(&s, cases[i].text, &info);
        if (rc != LTN_ERR_CONFIG || strstr(info.msg, cases[i].says) == NULL) {
            fail_msg("case %zu: rc %d, message \"%s\" lacks \"%s\"", i, rc, info.msg,
                     cases[i].says);
        }
        ltn_conf_done(&table, &s);
    }
}

static void yaml_limits(void **state)
{
    (void)state;
    struct sample s;
    struct ltn_errinfo info;
    init(&s);
    size_t n = (1U << 20) + 1;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, '#', n);
    assert_int_equal(ltn_conf_load_yaml(&table, &s, big, n, "big", &info), LTN_ERR_CONFIG);
    memset(big, '[', 200000);
    assert_int_equal(ltn_conf_load_yaml(&table, &s, big, 200000, "deep", &info), LTN_ERR_CONFIG);
    memset(big, '{', 200000);
    assert_int_equal(ltn_conf_load_yaml(&table, &s, big, 200000, "deep", &info), LTN_ERR_CONFIG);
    (void)snprintf(big, n, "push:\n  endpoint: ");
    memset(big + strlen("push:\n  endpoint: "), 'x', 70000);
    big[70000] = '\0';
    assert_int_equal(ltn_conf_load_yaml(&table, &s, big, 70000, "long", &info), LTN_ERR_CONFIG);
    free(big);
    ltn_conf_done(&table, &s);
}

static int args(struct sample *s, struct ltn_conf_args *a, struct ltn_errinfo *info,
                const char *const *words)
{
    char *argv[16] = {NULL};
    int argc = 0;
    while (words[argc] != NULL) {
        argv[argc] = (char *)(uintptr_t)words[argc];
        argc++;
    }
    return ltn_conf_load_args(&table, s, argc, argv, a, info);
}

#define ARGS(...) ((const char *const[]){"prog", __VA_ARGS__, NULL})

static void flags_of_every_form(void **state)
{
    (void)state;
    struct sample s;
    struct ltn_conf_args a;
    struct ltn_errinfo info;
    init(&s);
    assert_int_equal(args(&s, &a, &info,
                          ARGS("--record=false", "--no-io", "-w4", "--push-endpoint", "--x", "word",
                               "--pid", "1,2", "-p", "3", "--", "--not-a-flag")),
                     0);
    assert_false(s.record);
    assert_true(s.no_io);
    assert_int_equal(s.workers, 4);
    assert_string_equal(s.endpoint, "--x");
    assert_int_equal(s.pids.n, 3);
    assert_string_equal(s.pids.items[2], "3");
    assert_int_equal(a.word_count, 2);
    assert_string_equal(a.words[1], "--not-a-flag");
    ltn_conf_args_done(&a);
    assert_int_equal(args(&s, &a, &info, ARGS("--record", "--no-no-io", "--help", "--config=f")),
                     0);
    assert_true(s.record && !s.no_io && a.help);
    assert_string_equal(a.config_file, "f");
    ltn_conf_args_done(&a);
    assert_int_equal(args(&s, &a, &info, ARGS("--no-record")), 0);
    assert_false(s.record);
    ltn_conf_args_done(&a);
    assert_int_equal(args(&s, &a, &info, ARGS("--push-endpont", "x")), LTN_ERR_CONFIG);
    assert_non_null(strstr(info.msg, "--push-endpoint"));
    assert_int_equal(args(&s, &a, &info, ARGS("--workers")), LTN_ERR_CONFIG);
    assert_int_equal(args(&s, &a, &info, ARGS("--no-workers")), LTN_ERR_CONFIG);
    assert_int_equal(args(&s, &a, &info, ARGS("-z")), LTN_ERR_CONFIG);
    assert_int_equal(args(&s, &a, &info, ARGS("--record=perhaps")), LTN_ERR_CONFIG);
    ltn_conf_done(&table, &s);
}

static void later_sources_win(void **state)
{
    (void)state;
    char path[] = "/tmp/ltn-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = "workers: 3\ndeadband: 3\nmax_db: 3\ncuda_lib: [f]\n";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    (void)setenv("LANTERNE_DEADBAND", "4", 1);
    (void)setenv("LANTERNE_MAX_DB", "4", 1);
    (void)setenv("LANTERNE_CUDA_LIB", "e,e2", 1);
    (void)setenv("LANTERNE_WORKERS", "", 1);
    (void)setenv("LANTERNE_COLLECTOR_PORT", "tcp://10.0.0.1:4317", 1);
    char *argv[] = {(char[]){"prog"},       (char[]){"--config"}, path, (char[]){"--max-db=5"},
                    (char[]){"--cuda-lib"}, (char[]){"x"},        NULL};
    struct sample s;
    struct ltn_conf_args a;
    struct ltn_errinfo info = {0};
    assert_int_equal(ltn_conf_load(&table, &s, NULL, 6, argv, &a, &info), 0);
    assert_int_equal(s.workers, 3);
    assert_true(s.deadband > 3.9 && s.deadband < 4.1);
    assert_int_equal(s.max_db_bytes, 5);
    assert_int_equal(s.libs.n, 1);
    assert_string_equal(s.libs.items[0], "x");
    assert_string_equal(a.config_file, path);
    ltn_conf_args_done(&a);
    ltn_conf_done(&table, &s);
    (void)setenv("LANTERNE_DEADBAND", "x", 1);
    assert_int_equal(ltn_conf_load(&table, &s, NULL, 6, argv, &a, &info), LTN_ERR_CONFIG);
    assert_non_null(strstr(info.msg, "LANTERNE_DEADBAND"));
    ltn_conf_done(&table, &s);
    (void)unsetenv("LANTERNE_DEADBAND");
    (void)unlink(path);
}

static void slips_of_the_pen_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *means;
    } cases[] = {
        {"LANTERNE_DEADBND=1", "LANTERNE_DEADBAND"},
        {"LANTERNE_DAEDBAND=1", "LANTERNE_DEADBAND"},
        {"LANTERNE_WORKER=", "LANTERNE_WORKERS"},
        {"LANTERNE_DEADBAND=1", NULL},
        {"LANTERNE_COLLECTOR_PORT=tcp://10.0.0.1:4317", NULL}, /* the cluster's */
        {"LANTERNE_COLLECTOR_SERVICE_HOST=10.0.0.1", NULL},
        {"LANTERNE_=1", NULL},
        {"LANTERN_DEADBAND=1", NULL},
        {"LANTERNE_DEADBND_THAT_IS_MUCH_TOO_LONG_FOR_ANY_NAME_OF_A_KEY_OF_THIS_PROGRAM_OR_OF_ANY_OT"
         "HER_PROGRAM_THAT_I_HAVE_SEEN=1",
         NULL},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        char *env[] = {(char[]){"PATH=/bin"}, (char *)(uintptr_t)cases[i].variable, NULL};
        char hint[160];
        ltn_conf_env_hint(&table, env, hint, sizeof(hint));
        if (cases[i].means == NULL) {
            assert_string_equal(hint, "");
        } else {
            assert_non_null(strstr(hint, cases[i].means));
        }
    }
}

static void dump_reads_back(void **state)
{
    (void)state;
    struct sample s;
    struct sample again;
    struct ltn_errinfo info = {0};
    struct ltn_buf out;
    struct ltn_buf out2;
    ltn_buf_init(&out, 65536);
    ltn_buf_init(&out2, 65536);
    init(&s);
    init(&again);
    assert_int_equal(yaml(&s,
                          "push: {endpoint: \"a\\\"b: # c\", max_age: 90m}\nmax_db: 1536\n"
                          "cuda_lib: [\"x, y\", z]\nrecord: false\npy_walker: userspace\n",
                          &info),
                     0);
    assert_int_equal(ltn_conf_dump(&table, &s, &out), 0);
    assert_non_null(strstr(ltn_buf_str(&out), "max_age: 90m"));
    assert_int_equal(yaml(&again, ltn_buf_str(&out), &info), 0);
    assert_int_equal(ltn_conf_dump(&table, &again, &out2), 0);
    assert_string_equal(ltn_buf_str(&out), ltn_buf_str(&out2));
    assert_string_equal(again.endpoint, "a\"b: # c");
    ltn_buf_reset(&out);
    assert_int_equal(ltn_conf_help(&table, &out), 0);
    assert_non_null(strstr(ltn_buf_str(&out), "--py-walker auto|ebpf|userspace"));
    assert_non_null(strstr(ltn_buf_str(&out), "-w, --workers N"));
    ltn_buf_done(&out);
    ltn_buf_done(&out2);
    ltn_conf_done(&table, &s);
    ltn_conf_done(&table, &again);
}

static void secrets_come_from_files_only(void **state)
{
    (void)state;
    static const struct ltn_conf_key bad[] = {
        {"api_token", LTN_CONF_STRING, AT(endpoint), NULL, 0, 0, "", 0, 0, NULL, NULL}};
    static const struct ltn_conf_table bad_table = {bad, 1, NULL};
    struct sample s;
    struct ltn_errinfo info;
    assert_int_equal(ltn_conf_init(&bad_table, &s, &info), LTN_ERR_CONFIG);
    ltn_conf_done(&bad_table, &s);
    char path[] = "/tmp/ltn-secret-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "  s3cret \r\nsecond\n", 18), 18);
    char out[32];
    assert_int_equal(ltn_conf_read_secret(path, out, sizeof(out), &info), 0);
    assert_string_equal(out, "s3cret");
    char small[8];
    assert_int_equal(ltn_conf_read_secret(path, small, sizeof(small), &info), LTN_ERR_CONFIG);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(ltn_conf_read_secret(path, out, sizeof(out), &info), LTN_ERR_CONFIG);
    assert_true(ltn_conf_read_secret("/nonexistent", out, sizeof(out), &info) < 0);
    (void)close(fd);
    (void)unlink(path);
}

static int ran_argc;
static const char *ran_last;
static int run_it(int argc, char **argv)
{
    ran_argc = argc;
    ran_last = argv[argc - 1];
    return LTN_EXIT_FINDING;
}

static void commands_are_found(void **state)
{
    (void)state;
    static const struct ltn_command commands[] = {{"check", "Looks.", run_it},
                                                  {"trace", "Traces.", run_it}};
    char *argv[] = {(char[]){"l"}, (char[]){"trace"}, (char[]){"--pid"}, NULL};
    assert_int_equal(ltn_command_dispatch(commands, 2, "l", 3, argv), LTN_EXIT_FINDING);
    assert_int_equal(ran_argc, 2);
    assert_string_equal(ran_last, "--pid");
    char *help[] = {(char[]){"l"}, (char[]){"help"}, (char[]){"check"}, NULL};
    assert_int_equal(ltn_command_dispatch(commands, 2, "l", 3, help), LTN_EXIT_FINDING);
    char *wrong[] = {(char[]){"l"}, (char[]){"trce"}, NULL};
    assert_int_equal(ltn_command_dispatch(commands, 2, "l", 2, wrong), LTN_EXIT_USAGE);
    assert_int_equal(ltn_command_dispatch(commands, 2, "l", 1, wrong), LTN_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_set),
        cmocka_unit_test(yaml_nested_dotted_and_lists),
        cmocka_unit_test(yaml_mistakes_are_named),
        cmocka_unit_test(yaml_limits),
        cmocka_unit_test(flags_of_every_form),
        cmocka_unit_test(later_sources_win),
        cmocka_unit_test(slips_of_the_pen_are_told),
        cmocka_unit_test(dump_reads_back),
        cmocka_unit_test(secrets_come_from_files_only),
        cmocka_unit_test(commands_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
