/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne check`: can this machine be traced, what was found, and what to do about what is
 * missing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/bundle.h"
#include "cli/check_libs.h"
#include "cli/check_price.h"
#include "cli/check_record.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/store.h"
#include "conf/command.h"
#include "discover/kernel.h"
#include "gpu/gpu.h"
#include "http/client.h"
#include "probe/price.h"
#include "probe/probes.h"
#include "probe/self_test.h"
#include "serve/reports.h"

#define FINDINGS_MAX      64
#define GPU_WAIT_MS       3000
#define ROOM_MIN_BYTES    (1ULL << 30)
#define CAP_SYS_PTRACE    19
#define OUT_BYTES         ((size_t)256 * 1024)
#define COLLECTOR_WAIT_NS (5 * LTN_NS_PER_S)

struct check {
    struct ltn_agent_options o;
    struct ltn_kernel_facts kernel;
    struct ltn_finding findings[FINDINGS_MAX];
    size_t count;
    struct ltn_probes *probes; /* NULL when they do not load */
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

/* Which host families run, and which were switched off. */
static void check_host(struct check *c, const struct ltn_probes *p, uint32_t running)
{
    struct ltn_buf on;
    struct ltn_buf off;
    uint32_t unwanted = ltn_agent_host_off(&c->o);
    ltn_buf_init(&on, 160);
    ltn_buf_init(&off, 160);
    for (uint32_t family = 1; family <= LTN_HOST_ALL; family <<= 1) {
        struct ltn_buf *to = running & family ? &on : &off;
        (void)ltn_buf_printf(to, "%s%s%s", to->len > 0 ? ", " : "", ltn_probes_family_name(family),
                             unwanted & family ? " (switched off)" : "");
    }
    char value[160];
    (void)snprintf(value, sizeof(value), "watched: %s%s%s",
                   on.len > 0 ? ltn_buf_str(&on) : "nothing", off.len > 0 ? "; not: " : "",
                   ltn_buf_str(&off));
    bool all = (running | unwanted) == LTN_HOST_ALL;
    add(c, "host", all ? LTN_FINDING_OK : LTN_FINDING_WARN, value, ltn_probes_host_note(p));
    ltn_buf_done(&on);
    ltn_buf_done(&off);
}

/* What a call costs here, and what an agent that runs here has turned down for that. */
static void check_price(struct check *c, struct ltn_probes *p)
{
    struct ltn_finding f;
    struct ltn_probe_price price;
    ltn_probes_measure_price(p, &price);
    ltn_check_price(&price, c->o.budget_pct, &f);
    add(c, f.name, f.level, f.value, f.advice);
}

static void check_detail(struct check *c)
{
    char path[4096];
    struct ltn_finding f;
    if (ltn_store_path(&c->o, geteuid() == 0, path, sizeof(path)) >= 0 &&
        ltn_check_detail(path, &f)) {
        add(c, f.name, f.level, f.value, f.advice);
    }
}

static void check_programs(struct check *c)
{
    struct ltn_errinfo info = {0};
    struct ltn_probes *p = NULL;
    const struct ltn_probes_opts opts = {
        .force_kind = c->o.attach > 0,
        .kind = c->o.attach > 0 ? (enum ltn_link_kind)(c->o.attach - 1) : LTN_LINK_SESSION,
        .host_off = ltn_agent_host_off(&c->o),
        .files_by_syscall = c->o.files_by_syscall,
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
    check_host(c, p, probes.host);
    if (ltn_probes_self_test(p, &info) < 0) {
        add(c, "uprobe", LTN_FINDING_FAIL, "self-test failed", info.msg);
    } else {
        add(c, "uprobe", LTN_FINDING_OK, "a probe on a function of our own fired", "");
    }
    check_price(c, p);
    c->probes = p;
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

static void add_finding(void *arg, const char *name, enum ltn_finding_level level,
                        const char *value, const char *advice)
{
    add(arg, name, level, value, advice);
}

static void check_libraries(struct check *c)
{
    bool may_look = (c->kernel.cap_effective >> CAP_SYS_PTRACE & 1) != 0;
    ltn_check_libs(c->probes, may_look, add_finding, c);
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

/* What the agent on this machine doubts of what it read. */
static void check_record(struct check *c)
{
    char path[4096];
    struct ltn_finding f;
    if (c->count < FINDINGS_MAX && ltn_store_path(&c->o, geteuid() == 0, path, sizeof(path)) == 0 &&
        ltn_check_arguments(path, &f)) {
        c->findings[c->count++] = f;
    }
}

/* Times of different nodes compare only when their clocks are kept. */
static void check_clock(struct check *c)
{
    struct timex t = {0};
    char value[160];
    int state = adjtimex(&t);
    if (state < 0) {
        add(c, "clock", LTN_FINDING_WARN, "its state cannot be read", "");
    } else if (state == TIME_ERROR || (t.status & STA_UNSYNC) != 0) {
        add(c, "clock", LTN_FINDING_WARN, "not synchronised",
            "run chrony or systemd-timesyncd; without it times of different nodes do not compare");
    } else {
        (void)snprintf(value, sizeof(value), "synchronised, off by at most %.1f ms",
                       (double)t.maxerror / 1e3);
        add(c, "clock", LTN_FINDING_OK, value, "");
    }
}

/* Any answer of HTTP shows that the collector is there. */
static void check_collector(struct check *c)
{
    char url[512];
    char value[160];
    struct ltn_http_result r = {0};
    if (c->o.collector[0] == '\0') {
        return;
    }
    const char *scheme = strstr(c->o.collector, "://") != NULL ? "" : "http://";
    size_t len = strlen(c->o.collector);
    const char *slash = len > 0 && c->o.collector[len - 1] == '/' ? "" : "/";
    struct ltn_http_client *client = ltn_http_client_new();
    int n = snprintf(url, sizeof(url), "%s%s%shealthz", scheme, c->o.collector, slash);
    if (client == NULL || n < 0 || (size_t)n >= sizeof(url)) {
        ltn_http_client_free(client);
        return;
    }
    const struct ltn_agent_options *o = &c->o;
    const struct ltn_http_call call = {
        .url = url,
        .timeout_ns = COLLECTOR_WAIT_NS,
        .ca_file = o->collector_ca_file[0] != '\0' ? o->collector_ca_file : NULL,
        .cert_file = o->collector_cert_file[0] != '\0' ? o->collector_cert_file : NULL,
        .key_file = o->collector_key_file[0] != '\0' ? o->collector_key_file : NULL,
    };
    int rc = ltn_http_client_call(client, &call, &r);
    if (r.status != 0) {
        add(c, "collector", LTN_FINDING_OK, "reachable", "");
    } else {
        (void)snprintf(value, sizeof(value), "cannot be reached: %.130s",
                       r.error[0] != '\0' ? r.error : ltn_err_str(rc));
        add(c, "collector", LTN_FINDING_FAIL, value,
            "look at the address, the network policy and whether the collector runs; what is not "
            "pushed waits in the database");
    }
    ltn_http_client_free(client);
}

static void put_text(const struct check *c, struct ltn_buf *out)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct ltn_finding *f = &c->findings[i];
        (void)ltn_buf_printf(out, "%-4s  %-22s %s\n", ltn_finding_level_name(f->level), f->name,
                             f->value);
        if (f->advice[0] != '\0') {
            (void)ltn_buf_printf(out, "      %-22s -> %s\n", "", f->advice);
        }
    }
}

static void put_json(const struct check *c, struct ltn_buf *out)
{
    struct ltn_json j;
    ltn_json_init(&j, out);
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
    (void)ltn_buf_putc(out, '\n');
}

/* What the agent on this machine last said about itself. */
static void bundle_record(struct ltn_bundle *b, const struct check *c)
{
    char path[4096];
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    const struct ltn_report_ctx ctx = {.node = ""};
    if (ltn_store_path(&c->o, geteuid() == 0, path, sizeof(path)) < 0) {
        return;
    }
    if (ltn_record_reader_open(path, &r, &info) < 0) {
        ltn_bundle_add(b, "record.txt", info.msg, strlen(info.msg));
        return;
    }
    struct ltn_buf out;
    struct ltn_json j;
    ltn_buf_init(&out, OUT_BYTES);
    ltn_json_init(&j, &out);
    ltn_json_open_object(&j);
    int rc = ltn_report_overview(r, &ctx, &j, &info);
    ltn_json_close_object(&j);
    if (rc == 0) {
        ltn_bundle_add(b, "record.json", ltn_buf_str(&out), out.len);
    }
    ltn_buf_done(&out);
    ltn_record_reader_close(r);
}

static int write_bundle(const struct check *c, const char *path)
{
    static const char *const files[][2] = {
        {"proc-version.txt", "/proc/version"},       {"proc-meminfo.txt", "/proc/meminfo"},
        {"proc-loadavg.txt", "/proc/loadavg"},       {"psi-cpu.txt", "/proc/pressure/cpu"},
        {"psi-memory.txt", "/proc/pressure/memory"}, {"psi-io.txt", "/proc/pressure/io"},
        {"os-release.txt", "/etc/os-release"},       {"nvidia.txt", "/proc/driver/nvidia/version"},
        {"limits.txt", "/proc/self/limits"},         {"status.txt", "/proc/self/status"},
    };
    struct ltn_bundle b;
    struct ltn_buf out;
    struct ltn_errinfo info = {0};
    ltn_bundle_init(&b);
    ltn_buf_init(&out, OUT_BYTES);
    put_text(c, &out);
    ltn_bundle_add(&b, "check.txt", ltn_buf_str(&out), out.len);
    ltn_buf_reset(&out);
    put_json(c, &out);
    ltn_bundle_add(&b, "check.json", ltn_buf_str(&out), out.len);
    ltn_buf_reset(&out);
    if (ltn_conf_dump(&ltn_agent_table, &c->o, &out) == 0) {
        ltn_bundle_add(&b, "config.yaml", ltn_buf_str(&out), out.len);
    }
    ltn_bundle_add(&b, "version.txt", LTN_VERSION "\n", sizeof(LTN_VERSION));
    for (size_t i = 0; i < LTN_ARRAY_SIZE(files); i++) {
        ltn_bundle_add_file(&b, files[i][0], files[i][1]);
    }
    bundle_record(&b, c);
    int rc = ltn_bundle_write(&b, path, &info);
    ltn_buf_done(&out);
    ltn_bundle_done(&b);
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne check: %s\n", info.msg);
        return LTN_EXIT_CANNOT;
    }
    (void)fprintf(stderr, "written to %s; look into it before you send it to anybody\n", path);
    return LTN_EXIT_OK;
}

static void print(const struct check *c)
{
    struct ltn_buf out;
    ltn_buf_init(&out, OUT_BYTES);
    if (c->o.json) {
        put_json(c, &out);
    } else {
        put_text(c, &out);
    }
    (void)fputs(ltn_buf_str(&out), stdout);
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
        ltn_probes_free(c.probes);
        c.probes = NULL;
        check_detail(&c);
        check_room(&c);
        check_record(&c);
        check_clock(&c);
        check_collector(&c);
        print(&c);
        code = LTN_EXIT_OK;
        for (size_t i = 0; i < c.count; i++) {
            if (c.findings[i].level == LTN_FINDING_FAIL) {
                code = LTN_EXIT_FINDING;
            }
        }
        if (c.o.support_bundle[0] != '\0' && write_bundle(&c, c.o.support_bundle) != LTN_EXIT_OK) {
            code = LTN_EXIT_CANNOT;
        }
    }
    ltn_conf_done(&ltn_agent_table, &c.o);
    return code;
}
