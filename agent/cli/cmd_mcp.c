/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne mcp`: the node's tools for a model, over stdio or HTTP. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/store.h"
#include "conf/command.h"
#include "mcp/http.h"
#include "mcp/stdio.h"
#include "serve/mcp_tools.h"

#define QUEUE_ITEMS 16
#define DRAIN_NS    (2 * LTN_NS_PER_S)
#define TOKEN_BYTES 1024
#define PATH_BYTES  4096

struct mcp_options {
    char *db;
    char *http;
    char *token_file;
    struct ltn_conf_strings nodes;
    char *nodes_token_file;
};

#define AT(field) offsetof(struct mcp_options, field)

static const struct ltn_conf_key keys[] = {
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .doc = "The node's database; by default the service's, else the user's."},
    {.key = "http",
     .type = LTN_CONF_STRING,
     .offset = AT(http),
     .arg = "ADDR",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Serve http://ADDR/mcp, such as 127.0.0.1:8422, instead of stdin and stdout."},
    {.key = "token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(token_file),
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "File with the bearer token that clients of --http must send; needed beyond loopback."},
    {.key = "nodes",
     .type = LTN_CONF_STRINGS,
     .offset = AT(nodes),
     .arg = "HOST:PORT,...",
     .doc = "Local APIs that query_fleet may ask."},
    {.key = "nodes_token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(nodes_token_file),
     .arg = "FILE",
     .doc = "File with the bearer token for those."},
};
static const struct ltn_conf_table table = {keys, LTN_ARRAY_SIZE(keys), "LANTERNE_"};

struct mcp_service {
    struct mcp_options o;
    char db[PATH_BYTES];
    char program[PATH_BYTES];
    char token[TOKEN_BYTES];
    char nodes_token[TOKEN_BYTES];
    struct ltn_node_mcp *tools;
    /* --http */
    struct ltn_loop *loop;
    struct ltn_http_server *server;
    struct ltn_chan *queue; /* requests for the worker, which alone uses the tools */
    struct ltn_mcp_http front;
    pthread_t worker;
    atomic_bool stop;
    bool draining;
};

/* ---- HTTP ---- */

static int authorize(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag)
{
    const struct mcp_service *s = arg;
    (void)ret_tag;
    return s->token[0] == '\0' || ltn_http_bearer_is(req, s->token) ? 0 : LTN_ERR_UNAUTHENTICATED;
}

static void on_request(void *arg, struct ltn_http_request *req)
{
    struct mcp_service *s = arg;
    int rc = ltn_chan_send(s->queue, req, 1);
    if (rc < 0) {
        ltn_http_reply_error(req, rc, NULL, 0);
    }
}

static void *worker_main(void *arg)
{
    struct mcp_service *s = arg;
    struct ltn_http_request *req;
    for (;;) {
        bool stop = atomic_load(&s->stop); /* read before the queue: what came earlier is served */
        if ((req = ltn_chan_recv_wait(s->queue, stop ? 0 : -1)) == NULL) {
            if (stop) {
                break;
            }
        } else if (ltn_http_gone(req)) {
            ltn_http_reply_error(req, LTN_ERR_TIMEOUT, NULL, 0);
        } else {
            ltn_mcp_http_answer(&s->front, req);
        }
    }
    return NULL;
}

static void on_drained(void *arg)
{
    ltn_loop_stop(((struct mcp_service *)arg)->loop);
}

static void on_signal(void *arg, int signo)
{
    struct mcp_service *s = arg;
    (void)signo;
    if (s->draining) {
        ltn_loop_stop(s->loop);
        return;
    }
    s->draining = true;
    ltn_http_server_drain(s->server, DRAIN_NS, on_drained, s);
}

static bool is_loopback(const char *address)
{
    return address[0] != ':' && ltn_mcp_is_local_host(address);
}

static int make_server(struct mcp_service *s, struct ltn_errinfo *info)
{
    struct ltn_http_conf conf;
    sigset_t set;
    ltn_http_conf_default(&conf);
    conf.max_connections = 256;
    conf.max_connections_per_ip = 256;
    conf.max_body_bytes = LTN_MCP_MAX_BODY_BYTES;
    conf.server_name = "lanterne";
    conf.authorize = authorize;
    conf.authorize_arg = s;
    s->loop = ltn_loop_new();
    s->queue = ltn_chan_new(QUEUE_ITEMS, QUEUE_ITEMS);
    s->server = s->loop != NULL ? ltn_http_server_new(s->loop, &conf, NULL) : NULL;
    if (s->queue == NULL || s->server == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    int rc = ltn_loop_signals(s->loop, &set, on_signal, s);
    if (rc == 0) {
        rc = ltn_mcp_http_route(s->server, on_request, s);
    }
    return rc == 0 ? ltn_http_server_listen(s->server, s->o.http, info)
                   : ltn_errinfo_set(info, rc, "%s", ltn_err_str(rc));
}

static int serve_http(struct mcp_service *s, struct ltn_errinfo *info)
{
    s->front = (struct ltn_mcp_http){.mcp = ltn_node_mcp_server(s->tools),
                                     .loopback = is_loopback(s->o.http),
                                     .token = s->token[0] != '\0'};
    int rc = make_server(s, info);
    if (rc == 0) {
        rc = -pthread_create(&s->worker, NULL, worker_main, s);
    }
    if (rc == 0) {
        const char *colon = strrchr(s->o.http, ':');
        int n = colon != NULL ? (int)(colon - s->o.http) : (int)strlen(s->o.http);
        ltn_log_info("listening for mcp on http://%.*s:%u/mcp, record %s", n, s->o.http,
                     ltn_http_server_port(s->server, 0), s->db);
        rc = ltn_loop_run(s->loop);
        atomic_store(&s->stop, true);
        ltn_chan_close(s->queue);
        (void)pthread_join(s->worker, NULL);
    }
    ltn_http_server_free(s->server);
    ltn_loop_free(s->loop);
    ltn_chan_free(s->queue, NULL);
    return rc < 0 && info->msg[0] == '\0' ? ltn_errinfo_set(info, rc, "%s", ltn_err_str(rc)) : rc;
}

/* ---- both ---- */

/* --db, else the service's file when it can be read, else the user's. */
static int find_db(struct mcp_service *s, struct ltn_errinfo *info)
{
    char none[] = "";
    struct ltn_agent_options o = {.db = s->o.db != NULL ? s->o.db : none};
    int rc = ltn_store_path(&o, true, s->db, sizeof(s->db));
    if (rc == 0 && access(s->db, R_OK) != 0) {
        rc = ltn_store_path(&o, false, s->db, sizeof(s->db));
    }
    return rc < 0 ? ltn_errinfo_set(info, rc, "--db: the path is too long") : 0;
}

static int make_tools(struct mcp_service *s, struct ltn_errinfo *info)
{
    int rc = find_db(s, info);
    if (rc == 0 && s->o.token_file[0] != '\0') {
        rc = ltn_conf_read_secret(s->o.token_file, s->token, sizeof(s->token), info);
    }
    if (rc == 0 && s->o.nodes_token_file[0] != '\0') {
        rc = ltn_conf_read_secret(s->o.nodes_token_file, s->nodes_token, sizeof(s->nodes_token),
                                  info);
    }
    if (rc == 0 && s->o.http[0] != '\0' && !is_loopback(s->o.http) && s->token[0] == '\0') {
        rc = ltn_errinfo_set(info, LTN_ERR_CONFIG,
                             "--http %s can be reached from elsewhere: give --token-file, or an "
                             "address of this machine such as 127.0.0.1:8422",
                             s->o.http);
    }
    if (rc < 0) {
        return rc;
    }
    ssize_t n = readlink("/proc/self/exe", s->program, sizeof(s->program) - 1);
    s->program[n > 0 ? n : 0] = '\0';
    const struct ltn_node_mcp_opts opts = {
        .db_path = s->db,
        .check_program = s->program,
        .nodes = (const char *const *)s->o.nodes.items,
        .node_count = s->o.nodes.n,
        .nodes_token = s->nodes_token,
    };
    rc = ltn_node_mcp_new(&opts, &s->tools);
    return rc < 0 ? ltn_errinfo_set(info, rc, "%s",
                                    rc == LTN_ERR_COUNT ? "--nodes: too many" : ltn_err_str(rc))
                  : 0;
}

static int run(struct mcp_service *s)
{
    struct ltn_errinfo info = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = make_tools(s, &info);
    if (rc == 0) {
        rc = s->o.http[0] != '\0' ? serve_http(s, &info)
                                  : ltn_mcp_stdio_run(ltn_node_mcp_server(s->tools), 0, 1);
    }
    ltn_node_mcp_free(s->tools);
    if (rc == 0) {
        return LTN_EXIT_OK;
    }
    (void)fprintf(stderr, "lanterne mcp: %s\n", info.msg[0] != '\0' ? info.msg : ltn_err_str(rc));
    return rc == LTN_ERR_CONFIG ? LTN_EXIT_USAGE : LTN_EXIT_CANNOT;
}

static int help(void)
{
    struct ltn_buf b;
    ltn_buf_init(&b, 65536);
    (void)ltn_buf_puts(&b,
                       "usage: lanterne mcp [options]\n"
                       "Serves this node's record to a model: Model Context Protocol, one message "
                       "a line on\nstdin and stdout, or over HTTP.\n\n");
    int rc = ltn_conf_help(&table, &b);
    (void)fputs(ltn_buf_str(&b), stdout);
    ltn_buf_done(&b);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

static int dump(const struct mcp_options *o)
{
    struct ltn_buf b;
    ltn_buf_init(&b, 65536);
    int rc = ltn_conf_dump(&table, o, &b);
    (void)fputs(ltn_buf_str(&b), stdout);
    ltn_buf_done(&b);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

/* Not the agent's file, which LANTERNE_CONFIG may name: only one that --config names. */
static int load(struct mcp_service *s, int argc, char **argv, struct ltn_conf_args *args,
                struct ltn_errinfo *info)
{
    struct ltn_conf_args first = {0};
    int rc = ltn_conf_init(&table, &s->o, info);
    if (rc == 0) {
        rc = ltn_conf_load_args(&table, NULL, argc, argv, &first, info);
    }
    if (rc == 0 && first.config_file != NULL) {
        rc = ltn_conf_load_file(&table, &s->o, first.config_file, info);
    }
    if (rc == 0) {
        rc = ltn_conf_load_env(&table, &s->o, environ, info);
    }
    if (rc == 0) {
        rc = ltn_conf_load_args(&table, &s->o, argc, argv, args, info);
    }
    ltn_conf_args_done(&first);
    return rc;
}

int ltn_cmd_mcp(int argc, char **argv)
{
    struct mcp_service *s = calloc(1, sizeof(*s));
    struct ltn_conf_args args = {0};
    struct ltn_errinfo info = {0};
    if (s == NULL) {
        return LTN_EXIT_CANNOT;
    }
    int code = LTN_EXIT_USAGE;
    int rc = load(s, argc, argv, &args, &info);
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne mcp: %s\n", info.msg);
    } else if (args.help) {
        code = help();
    } else if (args.dump_config || args.check_config) {
        code = args.dump_config ? dump(&s->o) : LTN_EXIT_OK;
    } else if (args.word_count > 0) {
        (void)fprintf(stderr, "lanterne mcp: unexpected '%s'; see lanterne mcp --help\n",
                      args.words[0]);
    } else {
        code = run(s);
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &s->o);
    free(s);
    return code;
}
