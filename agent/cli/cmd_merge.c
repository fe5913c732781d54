/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne merge`: several databases as one. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/attr.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/merge.h"
#include "cli/reading.h"
#include "conf/command.h"

#define SKEW_WARN_NS 100e6

struct merge_options {
    char *output;
    char *force_node;
    bool json;
};

#define AT(field) offsetof(struct merge_options, field)
static const struct ltn_conf_key keys[] = {
    {.key = "output",
     .type = LTN_CONF_STRING,
     .offset = AT(output),
     .letter = 'o',
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "The new database; must not exist."},
    {.key = "force_node",
     .type = LTN_CONF_STRING,
     .offset = AT(force_node),
     .arg = "NAME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Take every row as of this node."},
    {.key = "json",
     .type = LTN_CONF_BOOL,
     .offset = AT(json),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Print one JSON object."},
};
static const struct ltn_conf_table table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

static void print_json(const struct ltn_merge_result *r)
{
    struct ltn_buf out;
    struct ltn_json j;
    ltn_buf_init(&out, 65536);
    ltn_json_init(&j, &out);
    ltn_json_open_object(&j);
    ltn_json_kv_u64(&j, "events", r->calls);
    ltn_json_kv_u64(&j, "windows", r->windows);
    ltn_json_kv_u64(&j, "incident_changes", r->incident_changes);
    ltn_json_kv_u64(&j, "duplicates", r->duplicates);
    ltn_json_kv_f64(&j, "clock_skew_ns", r->skew_pairs > 0 ? r->skew_ns : (double)NAN);
    ltn_json_kv_u64(&j, "node_pairs_measured", r->skew_pairs);
    ltn_json_kv_u64(&j, "node_pairs_unmeasured", r->unmeasured);
    ltn_json_close_object(&j);
    (void)puts(ltn_buf_str(&out));
    ltn_buf_done(&out);
}

static void print_text(const struct ltn_merge_result *r, const char *output)
{
    (void)printf("%s: %" PRIu64 " events, %" PRIu64 " windows, %" PRIu64 " incident changes",
                 output, r->calls, r->windows, r->incident_changes);
    if (r->duplicates > 0) {
        (void)printf("; %" PRIu64 " rows were in more than one input", r->duplicates);
    }
    (void)putchar('\n');
}

static void say_skew(const struct ltn_merge_result *r)
{
    if (r->skew_pairs > 0 && fabs(r->skew_ns) > SKEW_WARN_NS) {
        (void)fprintf(
            stderr,
            "lanterne merge: warning: %s enters collectives %.0f ms %s than %s: its clock "
            "differs, or it is slow\n",
            r->skew_a, fabs(r->skew_ns) / 1e6, r->skew_ns > 0 ? "later" : "earlier", r->skew_b);
    }
    if (r->unmeasured > 0) {
        (void)fprintf(stderr,
                      "lanterne merge: note: %" PRIu64 " pairs of nodes share no recorded "
                      "collectives, so the difference of their clocks is not known\n",
                      r->unmeasured);
    }
}

static int run(const struct merge_options *o, const struct ltn_conf_args *args)
{
    struct ltn_errinfo info = {0};
    struct ltn_merge_result result;
    if (args->word_count == 0 || o->output[0] == '\0') {
        (void)fprintf(stderr, "usage: lanterne merge A.db B.db … -o ALL.db\n");
        return LTN_EXIT_USAGE;
    }
    const struct ltn_merge_opts opts = {
        .inputs = args->words,
        .input_count = args->word_count,
        .output = o->output,
        .force_node = o->force_node[0] != '\0' ? o->force_node : NULL,
    };
    if (ltn_merge(&opts, &result, &info) < 0) {
        (void)fprintf(stderr, "lanterne merge: %s\n", info.msg);
        return LTN_EXIT_CANNOT;
    }
    if (o->json) {
        print_json(&result);
    } else {
        print_text(&result, o->output);
    }
    say_skew(&result);
    return LTN_EXIT_OK;
}

int ltn_cmd_merge(int argc, char **argv)
{
    struct merge_options o = {0};
    struct ltn_conf_args args = {0};
    int code = ltn_reading_load(
        &table, &o, "merge A.db B.db … -o ALL.db",
        "Copies several databases into a new one. The inputs are only read.", argc, argv, &args);
    if (code < 0) {
        code = run(&o, &args);
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &o);
    return code;
}
