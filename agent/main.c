/* SPDX-License-Identifier: Apache-2.0 */
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
    {"version", "version and kernel features", ltn_cmd_version},
};

int main(int argc, char **argv)
{
    return ltn_command_dispatch(commands, LTN_ARRAY_SIZE(commands), "lanterne", argc, argv);
}
