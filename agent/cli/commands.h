/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of `lanterne`; each returns an exit code (enum ltn_exit). */
#ifndef LTN_CLI_COMMANDS_H
#define LTN_CLI_COMMANDS_H

int ltn_cmd_agent(int argc, char **argv);
int ltn_cmd_trace(int argc, char **argv);
int ltn_cmd_check(int argc, char **argv);
int ltn_cmd_dashboard(int argc, char **argv);
int ltn_cmd_demo(int argc, char **argv);
int ltn_cmd_explain(int argc, char **argv);
int ltn_cmd_export(int argc, char **argv);
int ltn_cmd_mcp(int argc, char **argv);
int ltn_cmd_merge(int argc, char **argv);
int ltn_cmd_query(int argc, char **argv);
int ltn_cmd_version(int argc, char **argv);

#endif /* LTN_CLI_COMMANDS_H */
