/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC from a stranger. The first byte says how it came (stdio, HTTP, with which headers); the
 * rest is the message. An answer is always one line of valid JSON-RPC. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "mcp_toy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_one(const json_t *a)
{
    const char *version = json_string_value(json_object_get(a, "jsonrpc"));
    bool result = json_object_get(a, "result") != NULL;
    bool error = json_is_integer(json_object_get(json_object_get(a, "error"), "code"));
    if (version == NULL || strcmp(version, "2.0") != 0 || result == error) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const versions[] = {NULL, "2025-03-26", "2025-11-25", LTN_MCP_VERSION};
    static const char *const methods[] = {NULL, "tools/call", "prompts/get", "server/discover"};
    static struct ltn_mcp *mcp;
    char negotiated[16] = "";
    struct ltn_mcp_out out;
    json_error_t e;
    size_t i;
    json_t *one;
    if (mcp == NULL && (mcp = toy_new()) == NULL) {
        abort();
    }
    if (size == 0) {
        return 0;
    }
    struct ltn_mcp_in in = {
        .body = (const char *)data + 1,
        .len = size - 1,
        .http = (data[0] & 1) != 0,
        .version = versions[data[0] >> 1 & 3],
        .method = methods[data[0] >> 3 & 3],
        .name = (data[0] & 0x20) != 0 ? "count" : NULL,
        .negotiated = (data[0] & 1) != 0 ? NULL : &negotiated,
    };
    ltn_mcp_handle(mcp, &in, &out);
    if ((out.body == NULL) != (out.status == 202)) {
        abort();
    }
    if (out.body == NULL) {
        return 0;
    }
    json_t *a = json_loadb(out.body, out.len, JSON_REJECT_DUPLICATES, &e);
    if (a == NULL || memchr(out.body, '\n', out.len) != NULL) {
        abort();
    }
    if (json_is_array(a)) {
        json_array_foreach(a, i, one)
        {
            check_one(one);
        }
    } else {
        check_one(a);
    }
    json_decref(a);
    free(out.body);
    return 0;
}
