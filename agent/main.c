/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>

#include "base/attr.h"
#include "cli/commands.h"
#include "conf/command.h"

static const struct ltn_command commands[] = {
    {"trace", "watch GPU calls live", ltn_cmd_trace},
    {"agent", "the same as a service: record, push to a collector", ltn_cmd_agent},
    {"explain", "what went wrong, and why, from the record", ltn_cmd_explain},
    {"query", "ask the record, of this node or of many", ltn_cmd_query},
    {"dashboard", "serve the node's API from a database", ltn_cmd_dashboard},
    {"merge", "several databases as one", ltn_cmd_merge},
    {"export", "the record as Perfetto trace or CSV", ltn_cmd_export},
    {"demo", "see each kind of trouble without a GPU", ltn_cmd_demo},
    {"check", "can this machine be traced, and what is missing", ltn_cmd_check},
    {"mcp", "serve this node's record to a model (Model Context Protocol)", ltn_cmd_mcp},
    {"version", "version and kernel features", ltn_cmd_version},
};

#define RETURN_FROM_BYTES (128 * 1024)

/* Windows come and go as blocks of some hundred KiB. They are to go back to the kernel when they
 * are freed: left to itself the allocator would learn to keep such blocks, in an arena for each
 * thread. */
static void keep_little_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, RETURN_FROM_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, RETURN_FROM_BYTES);
    (void)mallopt(M_ARENA_MAX, 2);
}

int main(int argc, char **argv)
{
    keep_little_memory();
    return ltn_command_dispatch(commands, LTN_ARRAY_SIZE(commands), "lanterne", argc, argv);
}
