/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "mcp/mcp.h"

/* The parser calls itself for each level, so the depth is judged before it sees the text. */
static bool depth_fits(const char *text, size_t len)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > LTN_MCP_MAX_DEPTH) {
                return false;
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return true;
}

int ltn_mcp_read(const char *text, size_t len, json_t **ret)
{
    json_error_t e;
    if (len > LTN_MCP_MAX_BODY_BYTES) {
        return LTN_ERR_TOO_LARGE;
    }
    if (!depth_fits(text, len)) {
        return LTN_ERR_DEPTH;
    }
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (v == NULL) {
        return LTN_ERR_MALFORMED;
    }
    *ret = v;
    return 0;
}
