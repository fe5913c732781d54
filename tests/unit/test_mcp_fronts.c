/* SPDX-License-Identifier: Apache-2.0 */
/* stdio framing, and who may ask over HTTP. */
#include "cmocka_all.h"

#include <fcntl.h>
#include <unistd.h>

#include "mcp/http.h"
#include "mcp/stdio.h"
#include "mcp_toy.h"

/* Runs the server over files with this input; what it said, to be freed. */
static char *talk(const char *input, size_t n)
{
    struct ltn_mcp *m = toy_new();
    char in_path[] = "/tmp/ltn-mcp-in-XXXXXX";
    char out_path[] = "/tmp/ltn-mcp-out-XXXXXX";
    int in = mkstemp(in_path);
    int out = mkstemp(out_path);
    char *said = calloc(1, 65536);
    assert_non_null(m);
    assert_non_null(said);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(write(in, input, n), n);
    assert_int_equal(lseek(in, 0, SEEK_SET), 0);
    assert_int_equal(ltn_mcp_stdio_run(m, in, out), 0);
    assert_true(pread(out, said, 65535, 0) >= 0);
    (void)close(in);
    (void)close(out);
    (void)unlink(in_path);
    (void)unlink(out_path);
    ltn_mcp_free(m);
    return said;
}

static void test_one_line_one_answer(void **state)
{
    static const char input[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n"
                                "\n"
                                "  \n"
                                "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"
                                "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n"
                                "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}";
    (void)state;
    char *said = talk(input, sizeof(input) - 1);
    assert_string_equal(said, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n"
                              "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n");
    free(said);
}

static void test_a_line_too_long_is_skipped(void **state)
{
    static const char ping[] = "\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n";
    size_t n = 3 * LTN_MCP_MAX_BODY_BYTES;
    char *input = malloc(n + sizeof(ping));
    (void)state;
    assert_non_null(input);
    memset(input, '[', n);
    memcpy(input + n, ping, sizeof(ping));
    char *said = talk(input, n + sizeof(ping) - 1);
    assert_string_equal(said, "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":"
                              "\"size limit exceeded\"}}\n"
                              "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n");
    free(said);
    free(input);
}

static void test_batches_follow_the_settled_revision(void **state)
{
    static const char input[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
        "\"2025-03-26\"}}\n"
        "[{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]\n";
    (void)state;
    char *said = talk(input, sizeof(input) - 1);
    assert_non_null(strstr(said, "\n[{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]\n"));
    free(said);
}

static void test_hosts(void **state)
{
    static const char *const good[] = {"localhost", "LOCALHOST:8420", "127.0.0.1", "127.0.0.1:8420",
                                       "127.9.9.9", "[::1]",          "[::1]:8420"};
    static const char *const bad[] = {"",
                                      "evil.example.com",
                                      "localhost.evil.example.com",
                                      "127.0.0.1.evil.example.com",
                                      "127.0.0.1:8420@evil.example.com",
                                      "localhost:80x",
                                      "[::2]",
                                      "10.0.0.1:8420"};
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(good); i++) {
        assert_true(ltn_mcp_is_local_host(good[i]));
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        assert_false(ltn_mcp_is_local_host(bad[i]));
    }
    assert_true(ltn_mcp_is_local_origin("http://localhost:3000"));
    assert_true(ltn_mcp_is_local_origin("https://127.0.0.1"));
    assert_false(ltn_mcp_is_local_origin("null"));
    assert_false(ltn_mcp_is_local_origin("file://localhost"));
    assert_false(ltn_mcp_is_local_origin("http://evil.example.com"));
    assert_false(ltn_mcp_is_local_origin("http://localhost/x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line_one_answer),
        cmocka_unit_test(test_a_line_too_long_is_skipped),
        cmocka_unit_test(test_batches_follow_the_settled_revision),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
