/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/stdio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

#define READ_BYTES 65536

struct stdio {
    struct ltn_mcp *m;
    int out;
    char negotiated[16];
    struct ltn_buf line;
    bool skipping; /* inside a line that was too long */
};

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr(" \t\r", s[i]) == NULL) {
            return false;
        }
    }
    return true;
}

static int answer(struct stdio *s, const char *line, size_t len)
{
    struct ltn_mcp_out out;
    struct ltn_mcp_in in = {.body = line, .len = len, .negotiated = &s->negotiated};
    ltn_mcp_handle(s->m, &in, &out);
    int rc = out.body != NULL ? ltn_fd_write_all(s->out, out.body, out.len) : 0;
    if (rc == 0 && out.body != NULL) {
        rc = ltn_fd_write_all(s->out, "\n", 1);
    }
    free(out.body);
    return rc;
}

/* Bytes up to a line's end, or as far as they were read. */
static int take(struct stdio *s, const char *p, size_t n, bool ends)
{
    int rc = 0;
    if (!s->skipping && s->line.len + n > LTN_MCP_MAX_BODY_BYTES) {
        s->skipping = true;
        /* Too long by its length alone, whatever it holds. */
        rc = answer(s, p, LTN_MCP_MAX_BODY_BYTES + 1);
    }
    if (rc == 0 && !s->skipping) {
        rc = ltn_buf_append(&s->line, p, n);
    }
    if (rc == 0 && ends) {
        if (!s->skipping && !blank(ltn_buf_str(&s->line), s->line.len)) {
            rc = answer(s, ltn_buf_str(&s->line), s->line.len);
        }
        ltn_buf_reset(&s->line);
        s->skipping = false;
    }
    return rc;
}

static int take_bytes(struct stdio *s, const char *p, size_t n)
{
    int rc = 0;
    while (rc == 0 && n > 0) {
        const char *end = memchr(p, '\n', n);
        size_t part = end != NULL ? (size_t)(end - p) : n;
        rc = take(s, p, part, end != NULL);
        part += end != NULL ? 1 : 0;
        p += part;
        n -= part;
    }
    return rc;
}

int ltn_mcp_stdio_run(struct ltn_mcp *m, int in, int out)
{
    struct stdio s = {.m = m, .out = out};
    char *bytes = malloc(READ_BYTES);
    int rc = bytes != NULL ? 0 : -ENOMEM;
    ltn_buf_init(&s.line, LTN_MCP_MAX_BODY_BYTES + 1);
    while (rc == 0) {
        ssize_t n = read(in, bytes, READ_BYTES);
        if (n == 0) {
            break;
        }
        rc = n < 0 ? -errno : take_bytes(&s, bytes, (size_t)n);
    }
    ltn_buf_done(&s.line);
    free(bytes);
    return rc;
}
