/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne check`: can this machine be traced, what was found, and what to do about what is
 * missing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/store.h"
#include "conf/command.h"
#include "discover/kernel.h"
#include "discover/scan.h"
#include "gpu/gpu.h"
#include "probe/probes.h"
#include "probe/self_test.h"

#define FINDINGS_MAX   64
#define GPU_WAIT_MS    3000
#define ROOM_MIN_BYTES (1ULL << 30)
#define CAP_SYS_PTRACE 19

struct check {
    struct ltn_agent_options o;
    struct ltn_kernel_facts kernel;
    struct ltn_finding findings[FINDINGS_MAX];
    size_t count;
};

static void add(struct check *c, const char *name, enum ltn_finding_level level, const char *value,
                const char *advice)
{
    if (c->count == FINDINGS_MAX) {
        return;
    }
    struct ltn_finding *f = &c->findings[c->count++];
    *f = (struct ltn_finding){.name = name, .level = level};
    (void)snprintf(f->value, sizeof(f->value), "%s", value);
    (void)snprintf(f->advice, sizeof(f->advice), "%s", advice);
}

static void check_kernel(struct check *c)
{
    struct ltn_kernel_facts *k = &c->kernel;
    if (access("/proc/self/status", R_OK) != 0) {
        add(c, "proc", LTN_FINDING_FAIL, "/proc is not mounted",
            "mount /proc in the container; the lines below are not to be trusted without it");
    }
    ltn_kernel_probe(k);
    for (size_t i = 0; i < k->finding_count && c->count < FINDINGS_MAX; i++) {
        c->findings[c->count++] = k->findings[i];
    }
}

static void check_programs(struct check *c)
{
    struct ltn_errinfo info = {0};
    struct ltn_probes *p = NULL;
    const struct ltn_probes_opts opts = {
        .force_kind = c->o.attach > 0,
        .kind = c->o.attach > 0 ? (enum ltn_link_kind)(c->o.attach - 1) : LTN_LINK_SESSION,
    };
    if (ltn_probes_new(&opts, &p, &info) < 0) {
        add(c, "programs", LTN_FINDING_FAIL, "do not load", info.msg);
        return;
    }
    struct ltn_probes_info probes;
    ltn_probes_info(p, &probes);
    char value[160];
    (void)snprintf(value, sizeof(value), "loaded, links of kind %s, %" PRIu64 " KiB of maps",
                   ltn_link_kind_name(probes.kind), probes.map_bytes / 1024);
    const char *note = ltn_probes_note(p);
    add(c, "programs", note[0] != '\0' ? LTN_FINDING_WARN : LTN_FINDING_OK, value, note);
    if (ltn_probes_self_test(p, &info) < 0) {
        add(c, "uprobe", LTN_FINDING_FAIL, "self-test failed", info.msg);
    } else {
        add(c, "uprobe", LTN_FINDING_OK, "a probe on a function of our own fired", "");
    }
    ltn_probes_free(p);
}

static void check_gpu(struct check *c)
{
    struct ltn_gpu_provider provider;
    struct ltn_gpu *g = NULL;
    struct ltn_gpu_view *v = calloc(1, sizeof(*v));
    if (v != NULL && ltn_gpu_nvml_provider(NULL, &provider) == 0) {
        g = ltn_gpu_new(&provider, 1000, GPU_WAIT_MS);
    }
    if (g == NULL) {
        free(v);
        add(c, "gpu", LTN_FINDING_WARN, "not looked at: out of memory", "");
        return;
    }
    (void)ltn_gpu_wait(g, 1, GPU_WAIT_MS);
    ltn_gpu_view(g, v);
    char value[160];
    if (v->state == LTN_GPU_READY) {
        (void)snprintf(value, sizeof(value), "%u x %.60s, driver %s", v->device_count,
                       v->device_count > 0 ? v->devices[0].info.name : "?", v->driver_version);
        add(c, "gpu", LTN_FINDING_OK, value, "");
    } else {
        (void)snprintf(value, sizeof(value), "NVML: %s", ltn_gpu_state_name(v->state));
        add(c, "gpu", LTN_FINDING_WARN, value,
            "without NVML there are no clocks, temperatures or throttle reasons; calls are traced "
            "all the same");
    }
    (void)ltn_gpu_free(g);
    free(v);
}

static void ignore(const struct ltn_scan_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

/* How many processes use CUDA, and what could not be seen. */
static void say_processes(struct check *c, const struct ltn_scan_stats *stats)
{
    char value[160];
    char denied[64] = "";
    bool may_look = (c->kernel.cap_effective >> CAP_SYS_PTRACE & 1) != 0;
    const char *advice = "";
    if (stats->maps_denied_total > 0) {
        (void)snprintf(denied, sizeof(denied), "; %" PRIu64 " may not be looked at",
                       stats->maps_denied_total);
        advice = may_look ? "" : "grant CAP_SYS_PTRACE, else programs of other users stay unseen";
    }
    if (access("/proc/self", F_OK) == 0 && access("/proc/1", F_OK) != 0) {
        advice = "processes of other users are hidden: mount /proc without hidepid, or grant "
                 "CAP_SYS_PTRACE";
    }
    (void)snprintf(value, sizeof(value), "%zu of %zu use CUDA or NCCL%s", stats->procs_with_cuda,
                   stats->procs_now, denied);
    add(c, "processes", advice[0] == '\0' ? LTN_FINDING_OK : LTN_FINDING_WARN, value, advice);
}

static void check_libraries(struct check *c)
{
    const struct ltn_scope all = {0};
    struct ltn_scanner *s = ltn_scanner_new(&all);
    if (s == NULL || ltn_scanner_scan(s, ltn_now_mono_ns(), ignore, NULL) < 0) {
        add(c, "processes", LTN_FINDING_FAIL, "cannot list /proc", "mount /proc in the container");
        ltn_scanner_free(s);
        return;
    }
    struct ltn_scan_stats stats;
    ltn_scanner_stats(s, &stats);
    say_processes(c, &stats);
    char value[160];
    size_t pos = 0;
    const struct ltn_lib *lib;
    while ((lib = ltn_libs_next(ltn_scanner_libs(s), &pos)) != NULL) {
        (void)snprintf(value, sizeof(value), "%.120s, in %zu processes", lib->path,
                       lib->user_count);
        add(c, ltn_lib_kind_name(lib->kind), lib->readable ? LTN_FINDING_OK : LTN_FINDING_WARN,
            value, lib->readable ? "" : ltn_err_str(lib->open_error));
    }
    ltn_scanner_free(s);
}

static void check_room(struct check *c)
{
    char path[4096];
    struct statvfs fs;
    if (ltn_store_path(&c->o, geteuid() == 0, path, sizeof(path)) < 0) {
        return;
    }
    /* The folder is made when its parent is there: look at the nearest that exists. */
    const char *at = path;
    for (int up = 0; up < 2 && statvfs(at, &fs) != 0; up++) {
        char *slash = strrchr(path, '/');
        at = slash == NULL ? "." : slash == path ? "/" : path;
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    if (statvfs(at, &fs) != 0) {
        add(c, "disk", LTN_FINDING_WARN, "the folder for the database is not there",
            "make it or choose another place with --db");
        return;
    }
    struct stat st;
    bool file = stat(at, &st) == 0 && !S_ISDIR(st.st_mode);
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    char value[160];
    if (access(at, file ? R_OK | W_OK : W_OK | X_OK) != 0) {
        (void)snprintf(value, sizeof(value), "no right to write the database in %.100s", at);
        add(c, "disk", LTN_FINDING_WARN, value, "choose another place with --db");
        return;
    }
    (void)snprintf(value, sizeof(value), "%" PRIu64 " MiB free for the database", free_bytes >> 20);
    bool little = free_bytes < ROOM_MIN_BYTES;
    add(c, "disk", little ? LTN_FINDING_WARN : LTN_FINDING_OK, value,
        little ? "make room or choose another place with --db" : "");
}

static void print_text(const struct check *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct ltn_finding *f = &c->findings[i];
        (void)printf("%-4s  %-22s %s\n", ltn_finding_level_name(f->level), f->name, f->value);
        if (f->advice[0] != '\0') {
            (void)printf("      %-22s -> %s\n", "", f->advice);
        }
    }
}

static void print_json(const struct check *c)
{
    struct ltn_buf out;
    struct ltn_json j;
    ltn_buf_init(&out, 256 * 1024);
    ltn_json_init(&j, &out);
    ltn_json_open_object(&j);
    ltn_json_key(&j, "findings");
    ltn_json_open_array(&j);
    for (size_t i = 0; i < c->count; i++) {
        const struct ltn_finding *f = &c->findings[i];
        ltn_json_open_object(&j);
        ltn_json_kv_str(&j, "name", f->name);
        ltn_json_kv_str(&j, "level", ltn_finding_level_name(f->level));
        ltn_json_kv_str(&j, "value", f->value);
        ltn_json_kv_str(&j, "advice", f->advice);
        ltn_json_close_object(&j);
    }
    ltn_json_close_array(&j);
    ltn_json_close_object(&j);
    (void)puts(ltn_buf_str(&out));
    ltn_buf_done(&out);
}

int ltn_cmd_check(int argc, char **argv)
{
    static struct check c;
    int code = ltn_agent_options_load(
        &c.o, "Says whether this machine can be traced and what is missing.", argc, argv);
    if (code < 0) {
        check_kernel(&c);
        check_programs(&c);
        check_gpu(&c);
        check_libraries(&c);
        check_room(&c);
        if (c.o.json) {
            print_json(&c);
        } else {
            print_text(&c);
        }
        code = LTN_EXIT_OK;
        for (size_t i = 0; i < c.count; i++) {
            if (c.findings[i].level == LTN_FINDING_FAIL) {
                code = LTN_EXIT_FINDING;
            }
        }
    }
    ltn_conf_done(&ltn_agent_table, &c.o);
    return code;
}
