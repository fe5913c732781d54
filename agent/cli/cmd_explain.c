/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne explain`: what went wrong, and why, from the record. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/attr.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/reading.h"
#include "conf/command.h"

#define OUT_BYTES ((size_t)64 << 20)

struct explain_options {
    char *db;
    char *since, *from, *to;
    uint64_t last;
    uint64_t pid;
    bool chains, per_process, json;
};

#define AT(field) offsetof(struct explain_options, field)
static const struct ltn_conf_key keys[] = {
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .doc = "The database; by default the user's own, else that of the service."},
    {.key = "since",
     .type = LTN_CONF_STRING,
     .offset = AT(since),
     .arg = "5m",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Look at this last time; by default at all that is kept."},
    {.key = "from",
     .type = LTN_CONF_STRING,
     .offset = AT(from),
     .arg = "TIME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Look from this moment on (RFC 3339)."},
    {.key = "to",
     .type = LTN_CONF_STRING,
     .offset = AT(to),
     .arg = "TIME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Look until this moment."},
    {.key = "last",
     .type = LTN_CONF_U64,
     .offset = AT(last),
     .def = "10",
     .min = 1,
     .max = 10000,
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Most incidents to tell, the newest."},
    {.key = "pid",
     .type = LTN_CONF_U64,
     .offset = AT(pid),
     .letter = 'p',
     .def = "0",
     .max = INT_MAX,
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only this process; 0 = all."},
    {.key = "chains",
     .type = LTN_CONF_BOOL,
     .offset = AT(chains),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only the incidents as recorded."},
    {.key = "per_process",
     .type = LTN_CONF_BOOL,
     .offset = AT(per_process),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "With a table of the processes."},
    {.key = "json",
     .type = LTN_CONF_BOOL,
     .offset = AT(json),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Print one JSON object."},
};
static const struct ltn_conf_table table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

static int print(const struct ltn_explain *e, bool json)
{
    struct ltn_buf out;
    ltn_buf_init(&out, OUT_BYTES);
    if (json) {
        ltn_explain_json(e, &out);
    } else {
        ltn_explain_text(e, &out);
    }
    bool ok = ltn_reading_flush(stdout, &out) && fflush(stdout) == 0;
    ltn_buf_done(&out);
    if (!ok) {
        return LTN_EXIT_CANNOT;
    }
    return e->incidents.row_count > 0 ? LTN_EXIT_FINDING : LTN_EXIT_OK;
}

static int run(const struct explain_options *o)
{
    int code = 0;
    struct ltn_errinfo info = {0};
    struct ltn_explain e;
    struct ltn_explain_opts opts = {
        .last = o->last,
        .pid = (uint32_t)o->pid,
        .chains = o->chains,
        .per_process = o->per_process,
        .colour = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL,
    };
    if (!ltn_reading_times("explain", o->since, o->from, o->to, &opts.from_ns, &opts.to_ns)) {
        return LTN_EXIT_USAGE;
    }
    struct ltn_record_reader *r = ltn_reading_open("explain", o->db, &code);
    if (r == NULL) {
        return code;
    }
    int rc = ltn_explain_load(&e, r, &opts, &info);
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne explain: %s\n", info.msg);
        code = LTN_EXIT_CANNOT;
    } else {
        code = print(&e, o->json);
    }
    ltn_explain_done(&e);
    ltn_record_reader_close(r);
    return code;
}

int ltn_cmd_explain(int argc, char **argv)
{
    struct explain_options o = {0};
    struct ltn_conf_args args = {0};
    int code = ltn_reading_load(
        &table, &o, "explain [options]",
        "Incidents with time, measured split, cause and advice, and what the windows say.\n"
        "Exit code 1: there are incidents.",
        argc, argv, &args);
    if (code < 0) {
        code = ltn_reading_words("explain", &args, 0) ? run(&o) : LTN_EXIT_USAGE;
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &o);
    return code;
}
