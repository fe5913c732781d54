/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne demo`: each kind of trouble without a GPU: made-up windows and calls through the same
 * analysis, record and report as live ones. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/incidents.h"
#include "cli/reading.h"
#include "cli/scenario.h"
#include "conf/command.h"

#define OUT_BYTES   ((size_t)16 << 20)
#define FOLDER_SIZE 64

struct demo_options {
    char *db;
    char *node;
    bool no_gpu, gpu, json;
};

#define AT(field) offsetof(struct demo_options, field)
static const struct ltn_conf_key keys[] = {
    {.key = "no_gpu",
     .type = LTN_CONF_BOOL,
     .offset = AT(no_gpu),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Made-up data; no GPU and no root (the default)."},
    {.key = "gpu",
     .type = LTN_CONF_BOOL,
     .offset = AT(gpu),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "On a real GPU; not available yet."},
    {.key = "keep_db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Keep the database there; must not exist."},
    {.key = "node",
     .type = LTN_CONF_STRING,
     .offset = AT(node),
     .def = "demo",
     .flags = LTN_CONF_FLAG_ONLY | LTN_CONF_NOT_EMPTY,
     .doc = "Name of the node in the database."},
    {.key = "json",
     .type = LTN_CONF_BOOL,
     .offset = AT(json),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Print one JSON object."},
};
static const struct ltn_conf_table table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

static int fail(const char *what)
{
    (void)fprintf(stderr, "lanterne demo: %s\n", what);
    return LTN_EXIT_CANNOT;
}

/* Everything that live windows go through. */
static int feed(struct ltn_record *record, struct ltn_incidents *in, enum ltn_scenario what)
{
    uint64_t start = ltn_now_unix_ns() - LTN_SCENARIO_WINDOWS * LTN_SCENARIO_WINDOW_NS;
    for (unsigned n = 0; n < LTN_SCENARIO_WINDOWS; n++) {
        struct ltn_call_batch *b = ltn_scenario_calls(what, n, start);
        if (b == NULL) {
            return -ENOMEM;
        }
        ltn_incidents_calls(in, b);
        int rc = ltn_record_send_calls(record, b);
        if (rc < 0) {
            free(b);
            return rc;
        }
        struct ltn_window *w = ltn_scenario_window(what, n, start);
        if (w == NULL) {
            return -ENOMEM;
        }
        ltn_incidents_window(in, w);
        rc = ltn_record_send_window(record, w);
        if (rc < 0) {
            ltn_window_free(w);
            return rc;
        }
    }
    return 0;
}

static int make_record(const struct demo_options *o, enum ltn_scenario what, const char *path)
{
    struct ltn_errinfo info = {0};
    struct ltn_incidents in = {0};
    struct ltn_agent_options live = {.node = o->node, .incidents = true};
    const struct ltn_record_opts opts = {.path = path, .node = o->node, .record_calls = true};
    int rc = ltn_record_open(&opts, &in.record, &info);
    if (rc < 0) {
        return fail(info.msg);
    }
    rc = ltn_record_start(in.record);
    if (rc == 0) {
        rc = ltn_incidents_init(&in, &live);
    }
    if (rc == 0) {
        rc = feed(in.record, &in, what);
    }
    /* What is open stays open, as it would live. */
    ltn_causal_free(in.causal);
    ltn_record_close(in.record);
    return rc < 0 ? fail(ltn_err_str(rc)) : LTN_EXIT_OK;
}

static int report(const struct demo_options *o, enum ltn_scenario what, const char *path)
{
    struct ltn_explain e;
    struct ltn_errinfo info = {0};
    struct ltn_buf out;
    int code = 0;
    const struct ltn_explain_opts opts = {
        .to_ns = INT64_MAX,
        .last = 10,
        .per_process = true,
        .colour = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL,
    };
    struct ltn_record_reader *r = ltn_reading_open("demo", path, &code);
    if (r == NULL) {
        return code;
    }
    ltn_buf_init(&out, OUT_BYTES);
    int rc = ltn_explain_load(&e, r, &opts, &info);
    if (rc < 0) {
        code = fail(info.msg);
    } else if (o->json) {
        ltn_explain_json(&e, &out);
    } else {
        (void)ltn_buf_printf(&out, "Demonstration `%s` (made-up data).\n%s\n\n",
                             ltn_scenario_name(what), ltn_scenario_about(what));
        ltn_explain_text(&e, &out);
    }
    if (rc == 0 && !ltn_reading_flush(stdout, &out)) {
        code = LTN_EXIT_CANNOT;
    }
    ltn_buf_done(&out);
    ltn_explain_done(&e);
    ltn_record_reader_close(r);
    return code;
}

/* Removes a folder of ours with the files in it, whatever the record keeps beside its database. */
static void drop(const char *folder)
{
    DIR *d = opendir(folder);
    if (d == NULL) {
        return;
    }
    const struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        (void)unlinkat(dirfd(d), e->d_name, 0); /* "." and ".." stay: they are folders */
    }
    (void)closedir(d);
    (void)rmdir(folder);
}

static int run_scenario(const struct demo_options *o, enum ltn_scenario what)
{
    char folder[FOLDER_SIZE] = "/tmp/lanterne-demo-XXXXXX";
    char path[FOLDER_SIZE + 16];
    if (o->db[0] != '\0') {
        if (access(o->db, F_OK) == 0) {
            return fail("--keep-db: the file exists already");
        }
        int code = make_record(o, what, o->db);
        return code == LTN_EXIT_OK ? report(o, what, o->db) : code;
    }
    if (mkdtemp(folder) == NULL) {
        return fail("cannot make a folder in /tmp");
    }
    (void)snprintf(path, sizeof(path), "%s/demo.db", folder);
    int code = make_record(o, what, path);
    code = code == LTN_EXIT_OK ? report(o, what, path) : code;
    drop(folder);
    return code;
}

/* The four nodes, the collector and the real probes are a script of the source tree. */
static int run_straggler(void)
{
    char path[PATH_MAX];
    char script[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 5 && path[0] != '\0'; up++) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            break;
        }
        *slash = '\0';
        (void)snprintf(script, sizeof(script), "%s/scripts/quickstart", path);
        if (access(script, X_OK) == 0) {
            (void)execl(script, script, (char *)NULL);
            return fail(strerror(errno));
        }
    }
    return fail(
        "the straggler demonstration is scripts/quickstart of the source tree, which is not "
        "here; it builds and runs four simulated nodes and a collector, and needs root");
}

static void print_list(void)
{
    (void)puts("usage: lanterne demo SCENARIO [--no-gpu] [--json] [--keep-db FILE]\n");
    for (int i = 0; i < LTN_SCENARIOS; i++) {
        (void)printf("  %-18s %s\n", ltn_scenario_name((enum ltn_scenario)i),
                     ltn_scenario_about((enum ltn_scenario)i));
    }
    (void)puts("  straggler          Four simulated nodes and a collector, real probes (needs root "
               "and the source tree).");
}

static int run(const struct demo_options *o, const struct ltn_conf_args *args)
{
    if (!ltn_reading_words("demo", args, 1)) {
        return LTN_EXIT_USAGE;
    }
    if (args->word_count == 0) {
        print_list();
        return LTN_EXIT_USAGE;
    }
    if (o->gpu) {
        return fail("--gpu is not available yet; run without it");
    }
    if (strcmp(args->words[0], "straggler") == 0) {
        return run_straggler();
    }
    for (int i = 0; i < LTN_SCENARIOS; i++) {
        if (strcmp(args->words[0], ltn_scenario_name((enum ltn_scenario)i)) == 0) {
            return run_scenario(o, (enum ltn_scenario)i);
        }
    }
    (void)fprintf(stderr, "lanterne demo: there is no scenario '%s'; lanterne demo lists them\n",
                  args->words[0]);
    return LTN_EXIT_USAGE;
}

int ltn_cmd_demo(int argc, char **argv)
{
    struct demo_options o = {0};
    struct ltn_conf_args args = {0};
    int code = ltn_reading_load(&table, &o, "demo SCENARIO [options]",
                                "Shows a kind of trouble and the report on it.", argc, argv, &args);
    if (code < 0) {
        code = run(&o, &args);
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &o);
    return code;
}
