/* SPDX-License-Identifier: Apache-2.0 */
/* get_check: this program's own `check`, in a process of its own, so that a driver that hangs takes
 * that one along and not the server. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "serve/mcp_internal.h"

#define OUTPUT_MAX_BYTES ((size_t)256 << 10)
#define CHECK_NS         (18 * LTN_NS_PER_S)

static const struct ltn_mcp_column columns[] = {
    {"lv", "level", "ok, warn or fail", false},
    {"k", "name", "what was looked at", false},
    {"v", "value", "what was found; paths and names of libraries", true},
    {"do", "advice", "what to do", false},
};

static int spawn(const struct ltn_node_mcp *n, int out, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    char *program = (char *)(uintptr_t)n->opts.check_program;
    char *db = (char *)(uintptr_t)n->opts.db_path;
    char check[] = "check";
    char json[] = "--json";
    char db_flag[] = "--db";
    char *argv[] = {program, check, json, db_flag, db, NULL};
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) {
        return -rc;
    }
    rc = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(&actions, out, 1);
    }
    if (rc == 0) {
        rc = posix_spawn(ret_pid, program, &actions, NULL, argv, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Reads to the end; LTN_ERR_TIMEOUT at the call's deadline. */
static int read_all(struct ltn_mcp_call *call, int fd, struct ltn_buf *out)
{
    char bytes[4096];
    for (;;) {
        uint64_t left_ns = ltn_node_mcp_left_ns(call, CHECK_NS);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)(left_ns / LTN_NS_PER_MS));
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready <= 0) {
            return LTN_ERR_TIMEOUT;
        }
        ssize_t n = read(fd, bytes, sizeof(bytes));
        if (n <= 0) {
            return n < 0 ? -errno : 0;
        }
        int rc = ltn_buf_append(out, bytes, (size_t)n);
        if (rc < 0) {
            return rc;
        }
    }
}

static int run_check(const struct ltn_node_mcp *n, struct ltn_mcp_call *call, struct ltn_buf *out)
{
    int fds[2];
    pid_t pid = -1;
    int status;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return -errno;
    }
    int rc = spawn(n, fds[1], &pid);
    (void)close(fds[1]);
    if (rc == 0) {
        rc = read_all(call, fds[0], out);
        if (rc < 0) {
            (void)kill(pid, SIGKILL);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    (void)close(fds[0]);
    return rc;
}

static int put_findings(struct ltn_mcp_call *call, const json_t *findings)
{
    struct ltn_mcp_table t;
    size_t i;
    const json_t *f;
    int rc = ltn_mcp_table_begin(&t, call, columns, LTN_ARRAY_SIZE(columns));
    if (rc < 0) {
        return rc;
    }
    json_array_foreach(findings, i, f)
    {
        if (ltn_mcp_table_wants(&t)) {
            ltn_mcp_table_object(&t, f);
        }
    }
    call->result = ltn_mcp_table_finish(&t);
    return call->result != NULL ? 0 : -ENOMEM;
}

int ltn_node_tool_check(void *arg, struct ltn_mcp_call *call)
{
    const struct ltn_node_mcp *n = arg;
    struct ltn_buf out;
    json_t *answer = NULL;
    ltn_buf_init(&out, OUTPUT_MAX_BYTES);
    int rc = run_check(n, call, &out);
    if (rc < 0) {
        (void)ltn_mcp_fail(call, rc, "the check did not run: %s", ltn_err_str(rc));
    } else {
        rc = ltn_mcp_read(ltn_buf_str(&out), out.len, &answer);
        const json_t *findings = json_object_get(answer, "findings");
        if (rc == 0 && json_is_array(findings)) {
            rc = put_findings(call, findings);
        } else {
            rc = ltn_mcp_fail(call, LTN_ERR_INTERNAL, "the check gave no findings");
        }
    }
    json_decref(answer);
    ltn_buf_done(&out);
    return rc;
}
