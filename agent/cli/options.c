/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "conf/command.h"

#define DEFAULT_CONFIG "/etc/lanterne/agent.yaml"
#define RING_MIN_BYTES 4096
#define DB_MIN_BYTES   (1u << 20)

/* As enum ltn_py_walker. */
static const char *const py_walker_names[] = {"auto", "ebpf", "userspace", NULL};
const char *const ltn_attach_names[] = {"auto", "session", "multi", "perf", NULL};
static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};

#define AT(field) offsetof(struct ltn_agent_options, field)

static const struct ltn_conf_key keys[] = {
    {.key = "node",
     .type = LTN_CONF_STRING,
     .offset = AT(node),
     .doc = "Name of this node; the host name when empty."},
    {.key = "cluster",
     .type = LTN_CONF_STRING,
     .offset = AT(cluster),
     .doc = "Name of the cluster."},
    {.key = "collector",
     .type = LTN_CONF_STRING,
     .offset = AT(collector),
     .arg = "URL",
     .doc = "OTLP endpoint to push to, http://HOST:4317 or https://HOST:4317, or HOST (port 4317, "
            "cleartext) for short; nothing is pushed when empty."},
    {.key = "collector_ca_file",
     .type = LTN_CONF_STRING,
     .offset = AT(collector_ca_file),
     .arg = "FILE",
     .doc = "Certificates that the collector's is checked against instead of the system's."},
    {.key = "collector_cert_file",
     .type = LTN_CONF_STRING,
     .offset = AT(collector_cert_file),
     .arg = "FILE",
     .doc = "Certificate to show to the collector, PEM."},
    {.key = "collector_key_file",
     .type = LTN_CONF_STRING,
     .offset = AT(collector_key_file),
     .arg = "FILE",
     .doc = "Its key; in the certificate's file when not given."},
    {.key = "collector_server_name",
     .type = LTN_CONF_STRING,
     .offset = AT(collector_server_name),
     .arg = "NAME",
     .doc = "Name in the collector's certificate when it is not the host of the address."},
    {.key = "token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(token_file),
     .arg = "FILE",
     .doc = "File with the bearer token for the collector."},
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .doc = "The node's database; by default in /var/lib/lanterne (agent) or the user's home "
            "(trace)."},
    {.key = "pid",
     .type = LTN_CONF_STRINGS,
     .offset = AT(pids),
     .flags = LTN_CONF_NARROWS,
     .letter = 'p',
     .doc = "Trace only these processes and their children."},
    {.key = "user",
     .type = LTN_CONF_STRING,
     .offset = AT(user),
     .flags = LTN_CONF_NARROWS,
     .letter = 'u',
     .doc = "Trace only processes of this user."},
    {.key = "cgroup",
     .type = LTN_CONF_STRING,
     .offset = AT(cgroup),
     .flags = LTN_CONF_NARROWS,
     .arg = "PATH",
     .doc = "Trace only processes in this cgroup (v2) and below."},
    {.key = "listen",
     .type = LTN_CONF_STRING,
     .offset = AT(listen),
     .arg = "ADDRESS",
     .def = "auto",
     .doc = "Address of the local API; auto: 127.0.0.1:8421 for agent, off for trace. off or an "
            "empty text: none."},
    {.key = "api_token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(api_token_file),
     .arg = "FILE",
     .doc = "File with the bearer token for the local API; needed beyond loopback."},
    {.key = "api_cert_file",
     .type = LTN_CONF_STRING,
     .offset = AT(api_cert_file),
     .arg = "FILE",
     .doc = "Certificate of the local API, PEM; it then speaks TLS, and cleartext to this machine "
            "only."},
    {.key = "api_key_file",
     .type = LTN_CONF_STRING,
     .offset = AT(api_key_file),
     .arg = "FILE",
     .doc = "Key of that certificate, PEM, without a password."},
    {.key = "support_bundle",
     .type = LTN_CONF_STRING,
     .offset = AT(support_bundle),
     .flags = LTN_CONF_FLAG_ONLY,
     .arg = "FILE.tar.gz",
     .doc = "check: also write all of it, the configuration and the state of the machine there, "
            "secrets removed."},
    {.key = "cuda_lib",
     .type = LTN_CONF_STRINGS,
     .offset = AT(cuda_libs),
     .arg = "FILE",
     .doc = "Attach to this library from the start; may be given more than once."},
    {.key = "window",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(window_ns),
     .def = "10s",
     .min = 1,
     .max = 600,
     .doc = "Length of a window; the same on every node of a cluster."},
    {.key = "duration",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(duration_ns),
     .def = "0s",
     .max = 1e9,
     .doc = "Stop after this time; 0 = when interrupted."},
    {.key = "ringbuf_size",
     .type = LTN_CONF_SIZE_BYTES,
     .offset = AT(ring_bytes),
     .def = "4m",
     .min = RING_MIN_BYTES,
     .max = 1 << 30,
     .doc = "Size of the kernel's ring for call records; a power of two."},
    {.key = "sampling_rate",
     .type = LTN_CONF_U64,
     .offset = AT(sampling_rate),
     .def = "0",
     .max = 1e7,
     .doc =
         "Keep a record of one in N launches and copies besides the slow and failed ones; 1 = of "
         "each, 0 = of none. When records come too fast they are thinned out to one in 10 or 100, "
         "with weights. Counts and percentiles never depend on it."},
    {.key = "budget",
     .type = LTN_CONF_DOUBLE,
     .offset = AT(budget_pct),
     .arg = "PCT",
     .def = "2",
     .max = 100,
     .doc =
         "Share of a traced process's time that probes may take, in percent; detail is turned down "
         "to stay below it, never the counts. 0 = nothing is turned down."},
    {.key = "max_db",
     .type = LTN_CONF_SIZE_BYTES,
     .offset = AT(max_db_bytes),
     .def = "10g",
     .doc = "Ceiling on the database, 1m or more; the oldest rows go first; 0 = no ceiling."},
    {.key = "record",
     .type = LTN_CONF_BOOL,
     .offset = AT(record),
     .def = "true",
     .doc = "Keep what is seen in the database; --no-record: do not."},
    {.key = "record_all",
     .type = LTN_CONF_BOOL,
     .offset = AT(record_all),
     .def = "false",
     .doc = "Keep a record of every call, and do not thin records out."},
    {.key = "io",
     .type = LTN_CONF_BOOL,
     .offset = AT(io),
     .def = "true",
     .doc = "Watch block I/O: per disk, and per traced process; --no-io: do not."},
    {.key = "tcp",
     .type = LTN_CONF_BOOL,
     .offset = AT(tcp),
     .def = "true",
     .doc = "Watch TCP segments that are sent again; --no-tcp: do not."},
    {.key = "net",
     .type = LTN_CONF_BOOL,
     .offset = AT(net),
     .def = "true",
     .doc = "Watch the sockets of traced processes; --no-net: do not."},
    {.key = "files",
     .type = LTN_CONF_BOOL,
     .offset = AT(files),
     .def = "true",
     .doc = "Watch the files that traced processes open; --no-files: do not."},
    {.key = "files_by_syscall",
     .type = LTN_CONF_BOOL,
     .offset = AT(files_by_syscall),
     .def = "false",
     .doc = "Watch them also where the kernel has no cheap way: every system call of the machine "
            "then takes some 45 ns longer."},
    {.key = "memory",
     .type = LTN_CONF_BOOL,
     .offset = AT(memory),
     .def = "true",
     .doc = "Watch the memory that traced processes take; --no-memory: do not."},
    {.key = "open_slow",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(open_slow_ns),
     .def = "1ms",
     .min = 1e-6,
     .max = 60,
     .doc = "An open that takes this long is told by its path, as one that fails."},
    {.key = "deadband",
     .type = LTN_CONF_DOUBLE,
     .offset = AT(deadband_percent),
     .arg = "PCT",
     .def = "2",
     .max = 100,
     .doc = "Keep the state of the machine only when a share of it moved by so many percent; 0 = "
            "always."},
    {.key = "heartbeat",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(heartbeat_ns),
     .def = "1m",
     .max = 86400,
     .doc = "Keep it after this time in any case."},
    {.key = "stack",
     .type = LTN_CONF_BOOL,
     .offset = AT(stack),
     .def = "true",
     .doc = "Take the stack of each recorded call; --no-stack: do not."},
    {.key = "py_walker",
     .type = LTN_CONF_ENUM,
     .offset = AT(py_walker),
     .def = "auto",
     .names = py_walker_names,
     .doc = "Python frames: ebpf in the kernel, for recorded calls; userspace from outside, for "
            "calls that last a second or more; auto both."},
    {.key = "incidents",
     .type = LTN_CONF_BOOL,
     .offset = AT(incidents),
     .def = "true",
     .doc = "Look for incidents and their causes; --no-incidents: do not."},
    {.key = "incident_hang",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(incident_hang_ns),
     .def = "30s",
     .min = 1,
     .max = 86400,
     .doc = "A collective is not called hung before this time, nor before ten usual steps."},
    {.key = "incident_excess",
     .type = LTN_CONF_DOUBLE,
     .offset = AT(incident_excess),
     .def = "0.15",
     .min = 0.01,
     .max = 10,
     .doc = "Growth of a process's host time over its usual from which it is an incident."},
    {.key = "json",
     .type = LTN_CONF_BOOL,
     .offset = AT(json),
     .def = "false",
     .doc = "Print JSON, one object a line."},
    {.key = "verbose",
     .type = LTN_CONF_BOOL,
     .offset = AT(verbose),
     .def = "false",
     .letter = 'v',
     .doc = "Say more."},
    {.key = "attach",
     .type = LTN_CONF_ENUM,
     .offset = AT(attach),
     .def = "auto",
     .names = ltn_attach_names,
     .doc = "Kind of uprobe link to use."},
    {.key = "log_level",
     .type = LTN_CONF_ENUM,
     .offset = AT(log_level),
     .def = "info",
     .names = level_names,
     .doc = "Least important log line still printed."},
};

const struct ltn_conf_table ltn_agent_table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

static int add_pids(const struct ltn_conf_strings *pids, struct ltn_scope *scope,
                    struct ltn_errinfo *info)
{
    for (size_t i = 0; i < pids->n; i++) {
        uint64_t pid;
        if (!ltn_parse_u64(pids->items[i], &pid) || pid == 0 || pid > INT_MAX) {
            return ltn_errinfo_set(info, LTN_ERR_CONFIG, "--pid: '%s' is no process id",
                                   pids->items[i]);
        }
        if (scope->pid_count == LTN_ARRAY_SIZE(scope->pids)) {
            return ltn_errinfo_set(info, LTN_ERR_CONFIG, "--pid: at most %zu processes",
                                   LTN_ARRAY_SIZE(scope->pids));
        }
        scope->pids[scope->pid_count++] = (pid_t)pid;
    }
    return 0;
}

static int find_user(const char *name, uid_t *ret, struct ltn_errinfo *info)
{
    uint64_t number;
    if (ltn_parse_u64(name, &number) && number < UINT_MAX) {
        *ret = (uid_t)number;
        return 0;
    }
    char buf[4096];
    struct passwd pw;
    struct passwd *found = NULL;
    if (getpwnam_r(name, &pw, buf, sizeof(buf), &found) != 0 || found == NULL) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "--user: there is no user '%s'", name);
    }
    *ret = found->pw_uid;
    return 0;
}

uint32_t ltn_agent_host_off(const struct ltn_agent_options *o)
{
    return (o->io ? 0U : LTN_HOST_BLOCK) | (o->tcp ? 0U : LTN_HOST_TCP) |
           (o->net ? 0U : LTN_HOST_NET) | (o->files ? 0U : LTN_HOST_FILES) |
           (o->memory ? 0U : LTN_HOST_MEMORY);
}

int ltn_agent_engine_opts(const struct ltn_agent_options *o, struct ltn_engine_opts *ret,
                          struct ltn_errinfo *info)
{
    if ((o->ring_bytes & (o->ring_bytes - 1)) != 0) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "--ringbuf-size must be a power of two");
    }
    *ret = (struct ltn_engine_opts){
        .node = o->node,
        .cgroup = o->cgroup,
        .libs = (const char *const *)o->cuda_libs.items,
        .lib_count = o->cuda_libs.n,
        .window_ns = o->window_ns,
        .ring_bytes = (uint32_t)o->ring_bytes,
        .sample_every = o->record_all ? 1 : (uint32_t)o->sampling_rate,
        .no_stacks = !o->stack,
        .py_walker = (enum ltn_py_walker)o->py_walker,
        .keep_all = o->record_all,
        .budget = o->budget_pct / 100.0,
        .force_kind = o->attach > 0,
        .kind = o->attach > 0 ? (enum ltn_link_kind)(o->attach - 1) : LTN_LINK_SESSION,
        .host_off = ltn_agent_host_off(o),
        .files_by_syscall = o->files_by_syscall,
        .open_slow_ns = o->open_slow_ns,
        .deadband = o->deadband_percent / 100.0,
        .heartbeat_ns = o->heartbeat_ns,
    };
    int rc = add_pids(&o->pids, &ret->scope, info);
    if (rc == 0 && o->user[0] != '\0') {
        ret->scope.by_uid = true;
        rc = find_user(o->user, &ret->scope.uid, info);
    }
    return rc;
}

void ltn_invoker_find(struct ltn_invoker *ret)
{
    uint64_t uid;
    uint64_t gid;
    const char *sudo_uid = getenv("SUDO_UID");
    const char *sudo_gid = getenv("SUDO_GID");
    *ret = (struct ltn_invoker){.uid = getuid(), .gid = getgid()};
    if (geteuid() == 0 && sudo_uid != NULL && sudo_gid != NULL && ltn_parse_u64(sudo_uid, &uid) &&
        ltn_parse_u64(sudo_gid, &gid) && uid < UINT_MAX && gid < UINT_MAX) {
        ret->uid = (unsigned)uid;
        ret->gid = (unsigned)gid;
        ret->sudo = uid != 0;
    }
    char buf[4096];
    struct passwd pw;
    struct passwd *found = NULL;
    if (getpwuid_r(ret->uid, &pw, buf, sizeof(buf), &found) == 0 && found != NULL &&
        !ltn_copy_str(ret->home, sizeof(ret->home), found->pw_dir)) {
        ret->home[0] = '\0';
    }
}

static int print_help(const char *name, const char *summary)
{
    struct ltn_buf out;
    ltn_buf_init(&out, 64 * 1024);
    (void)ltn_buf_printf(&out, "usage: lanterne %s [options]\n%s\n\n", name, summary);
    int rc = ltn_conf_help(&ltn_agent_table, &out);
    (void)fputs(ltn_buf_str(&out), stdout);
    ltn_buf_done(&out);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

static int print_config(const struct ltn_agent_options *o)
{
    struct ltn_buf out;
    ltn_buf_init(&out, 64 * 1024);
    int rc = ltn_conf_dump(&ltn_agent_table, o, &out);
    (void)fputs(ltn_buf_str(&out), stdout);
    ltn_buf_done(&out);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

static int use_host_name(struct ltn_agent_options *o)
{
    char host[HOST_NAME_MAX + 1] = {0};
    if (o->node[0] != '\0') {
        return 0;
    }
    if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') {
        return -EINVAL;
    }
    char *copy = strdup(host);
    if (copy == NULL) {
        return -ENOMEM;
    }
    free(o->node);
    o->node = copy;
    return 0;
}

int ltn_agent_options_load(struct ltn_agent_options *o, const char *summary, int argc, char **argv)
{
    struct ltn_errinfo info = {0};
    struct ltn_conf_args args = {0};
    int code = -1;
    int rc = ltn_conf_load(&ltn_agent_table, o, DEFAULT_CONFIG, argc, argv, &args, &info);
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne %s: %s\n", argv[0], info.msg);
        code = LTN_EXIT_USAGE;
    } else if (args.help) {
        code = print_help(argv[0], summary);
    } else if (args.word_count > 0) {
        (void)fprintf(stderr, "lanterne %s: unexpected '%s'; see lanterne %s --help\n", argv[0],
                      args.words[0], argv[0]);
        code = LTN_EXIT_USAGE;
    } else if (o->max_db_bytes != 0 && o->max_db_bytes < DB_MIN_BYTES) {
        (void)fprintf(stderr, "lanterne %s: --max-db must be 1m or more, or 0 for no ceiling\n",
                      argv[0]);
        code = LTN_EXIT_USAGE;
    } else if (args.dump_config) {
        code = print_config(o);
    } else if (args.check_config) {
        (void)printf("configuration is fine\n");
        code = LTN_EXIT_OK;
    } else if (use_host_name(o) < 0) {
        (void)fprintf(stderr, "lanterne %s: this host has no name; give one with --node\n",
                      argv[0]);
        code = LTN_EXIT_CANNOT;
    }
    if (rc == 0 && args.hint[0] != '\0') {
        (void)fprintf(stderr, "lanterne %s: %s\n", argv[0], args.hint);
    }
    ltn_conf_args_done(&args);
    if (code < 0) {
        ltn_log_set_level((enum ltn_log_level)o->log_level);
    }
    return code;
}
