/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne dashboard`: the local API from a database, without capture and without root. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/attr.h"
#include "cli/commands.h"
#include "cli/reading.h"
#include "conf/command.h"
#include "serve/serve.h"

struct dashboard_options {
    char *db;
    char *listen;
    char *token_file, *cert_file, *key_file;
};

#define AT(field) offsetof(struct dashboard_options, field)
static const struct ltn_conf_key keys[] = {
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .doc = "The database; by default the user's own, else that of the service."},
    {.key = "listen",
     .type = LTN_CONF_STRING,
     .offset = AT(listen),
     .arg = "ADDRESS",
     .def = "127.0.0.1:8421",
     .flags = LTN_CONF_FLAG_ONLY | LTN_CONF_NOT_EMPTY,
     .doc = "Address to listen on; port 0: any free one."},
    {.key = "api_cert_file",
     .type = LTN_CONF_STRING,
     .offset = AT(cert_file),
     .arg = "FILE",
     .doc = "Certificate, PEM; then TLS is spoken, and cleartext to this machine only."},
    {.key = "api_key_file",
     .type = LTN_CONF_STRING,
     .offset = AT(key_file),
     .arg = "FILE",
     .doc = "Key of that certificate, PEM, without a password."},
    {.key = "api_token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(token_file),
     .arg = "FILE",
     .doc = "File with a bearer token that callers must send; needed beyond loopback."},
};
static const struct ltn_conf_table table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

static void wait_for_signal(void)
{
    sigset_t set;
    struct signalfd_siginfo si;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    while (fd >= 0 && read(fd, &si, sizeof(si)) < 0 && errno == EINTR) {
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int run(const struct dashboard_options *o)
{
    char path[PATH_MAX];
    int code = 0;
    struct ltn_serve *s = NULL;
    struct ltn_errinfo info = {0};
    struct ltn_record_reader *r = ltn_reading_open("dashboard", o->db, &code);
    ltn_record_reader_close(r);
    if (r == NULL || !ltn_reading_db_path(o->db, path, sizeof(path))) {
        return code;
    }
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    const struct ltn_serve_opts opts = {.listen = o->listen,
                                        .token_file = o->token_file,
                                        .cert_file = o->cert_file,
                                        .key_file = o->key_file,
                                        .db_path = path};
    int rc = ltn_serve_start(&opts, &s, &info);
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne dashboard: %s\n", info.msg);
        return rc == LTN_ERR_CONFIG ? LTN_EXIT_USAGE : LTN_EXIT_CANNOT;
    }
    (void)printf("serving %s on port %u; end with Ctrl-C\n", path, (unsigned)ltn_serve_port(s));
    (void)fflush(stdout);
    wait_for_signal();
    ltn_serve_stop(s);
    return LTN_EXIT_OK;
}

int ltn_cmd_dashboard(int argc, char **argv)
{
    struct dashboard_options o = {0};
    struct ltn_conf_args args = {0};
    int code = ltn_reading_load(&table, &o, "dashboard [options]",
                                "Serves the node's API (docs/node-api.md) from a database.", argc,
                                argv, &args);
    if (code < 0) {
        code = ltn_reading_words("dashboard", &args, 0) ? run(&o) : LTN_EXIT_USAGE;
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &o);
    return code;
}
