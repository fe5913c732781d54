/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check_libs.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "discover/scan.h"

#define VALUE_BYTES 160
#define LIBS_SHOWN  32

struct say {
    ltn_check_add add;
    void *arg;
};

static void ignore(const struct ltn_scan_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

/* How many processes use CUDA, and what could not be seen. */
static void say_processes(const struct say *to, const struct ltn_scan_stats *stats, bool may_look)
{
    char value[VALUE_BYTES];
    char denied[64] = "";
    const char *advice = "";
    if (stats->procs_hidden > 0) {
        (void)snprintf(denied, sizeof(denied), "; %zu may not be looked at", stats->procs_hidden);
        advice = may_look ? "" : "grant CAP_SYS_PTRACE, else programs of other users stay unseen";
    }
    if (access("/proc/self", F_OK) == 0 && access("/proc/1", F_OK) != 0) {
        advice = "processes of other users are hidden: mount /proc without hidepid, or grant "
                 "CAP_SYS_PTRACE";
    }
    (void)snprintf(value, sizeof(value), "%zu of %zu use CUDA or NCCL%s", stats->procs_with_cuda,
                   stats->procs_now, denied);
    to->add(to->arg, "processes", advice[0] == '\0' ? LTN_FINDING_OK : LTN_FINDING_WARN, value,
            advice);
}

static void say_library(const struct say *to, struct ltn_probes *probes, const struct ltn_lib *lib)
{
    char value[VALUE_BYTES];
    struct ltn_errinfo info = {0};
    const char *advice = "";
    int functions = 0;
    if (!lib->readable) {
        advice = ltn_err_str(lib->open_error);
    } else if (probes != NULL) {
        functions = ltn_probes_try(probes, lib, &info);
        advice = functions < 0 ? info.msg : "";
    }
    bool ok = lib->readable && functions >= 0;
    int n = snprintf(value, sizeof(value), "%.100s, in %zu processes", lib->path, lib->user_count);
    if (ok && functions > 0 && n > 0 && (size_t)n < sizeof(value)) {
        (void)snprintf(value + n, sizeof(value) - (size_t)n, ", %d functions%s", functions,
                       lib->stripped ? " told by their code" : "");
    } else if (!ok && n > 0 && (size_t)n < sizeof(value)) {
        (void)snprintf(value + n, sizeof(value) - (size_t)n, ": cannot be attached to");
    }
    to->add(to->arg, ltn_lib_kind_name(lib->kind), ok ? LTN_FINDING_OK : LTN_FINDING_WARN, value,
            advice);
}

static void say_libraries(const struct say *to, struct ltn_probes *probes, struct ltn_libs *libs)
{
    const struct ltn_lib *lib;
    size_t pos = 0;
    size_t shown = 0;
    size_t left_out = 0;
    while ((lib = ltn_libs_next(libs, &pos)) != NULL) {
        if (shown < LIBS_SHOWN) {
            say_library(to, probes, lib);
            shown++;
        } else {
            left_out++;
        }
    }
    if (left_out > 0) {
        char value[VALUE_BYTES];
        (void)snprintf(value, sizeof(value), "%zu more files were not tried", left_out);
        to->add(to->arg, "libraries", LTN_FINDING_OK, value, "");
    }
}

static bool carries_runtime(const struct ltn_lib *lib)
{
    return lib->kind == LTN_LIB_CUDART ||
           (lib->kind == LTN_LIB_EMBEDDED && (lib->embeds & LTN_EMBEDS_CUDART) != 0);
}

/* Does the process map the driver and nothing known as a runtime? */
static bool is_driver_only(struct ltn_libs *libs, pid_t pid)
{
    const struct ltn_lib *lib;
    size_t pos = 0;
    bool driver = false;
    while ((lib = ltn_libs_next(libs, &pos)) != NULL) {
        if (!ltn_lib_has_user(lib, pid)) {
            continue;
        }
        if (carries_runtime(lib)) {
            return false;
        }
        driver = driver || lib->kind == LTN_LIB_CUDA;
    }
    return driver;
}

static void say_driver_only(const struct say *to, struct ltn_scanner *s)
{
    const struct ltn_proc *proc;
    const struct ltn_proc *first = NULL;
    size_t pos = 0;
    size_t count = 0;
    while ((proc = ltn_scanner_next(s, &pos)) != NULL) {
        if (is_driver_only(ltn_scanner_libs(s), proc->pid)) {
            first = first == NULL ? proc : first;
            count++;
        }
    }
    if (first != NULL) {
        char value[VALUE_BYTES];
        (void)snprintf(value, sizeof(value),
                       "%zu processes are seen at the driver's calls only, e.g. %d (%s)", count,
                       (int)first->pid, first->comm);
        to->add(to->arg, "driver_only", LTN_FINDING_OK, value,
                "they call the driver themselves, or their runtime is linked in and its symbols "
                "were stripped; keep the symbols to see runtime calls too");
    }
}

void ltn_check_libs(struct ltn_probes *probes, bool may_look, ltn_check_add add, void *arg)
{
    const struct say to = {.add = add, .arg = arg};
    const struct ltn_scope all = {0};
    struct ltn_scanner *s = ltn_scanner_new(&all);
    if (s == NULL || ltn_scanner_scan(s, ltn_now_mono_ns(), ignore, NULL) < 0) {
        add(arg, "processes", LTN_FINDING_FAIL, "cannot list /proc",
            "mount /proc in the container");
        ltn_scanner_free(s);
        return;
    }
    struct ltn_scan_stats stats;
    ltn_scanner_stats(s, &stats);
    say_processes(&to, &stats, may_look);
    say_libraries(&to, probes, ltn_scanner_libs(s));
    say_driver_only(&to, s);
    ltn_scanner_free(s);
}
