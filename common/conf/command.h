/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands: a table of names, and what runs. */
#ifndef LTN_CONF_COMMAND_H
#define LTN_CONF_COMMAND_H

#include <stddef.h>

#include "base/attr.h"
#include "base/buf.h"

/* Exit codes of the programs. */
enum ltn_exit {
    LTN_EXIT_OK = 0,
    LTN_EXIT_FINDING = 1, /* a finding or a failed check */
    LTN_EXIT_USAGE = 2,
    LTN_EXIT_CANNOT = 3, /* cannot run here; what is missing was said */
};

struct ltn_command {
    const char *name;
    const char *summary;               /* one line; NULL: not listed */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand's name; returns the exit code */
};

/* Runs the command named by argv[1]. "--help", "-h", "help" and no argument at all print the list
 * (exit code 0, without an argument 2); "help NAME" runs "NAME --help"; "--version" runs "version".
 * An unknown name gives 2 and says so on stderr, with the known one it is close to, if any. */
int ltn_command_dispatch(const struct ltn_command *commands, size_t n, const char *program,
                         int argc, char **argv) ltn_must_check;

/* Appends the list of commands. */
int ltn_command_help(const struct ltn_command *commands, size_t n, const char *program,
                     struct ltn_buf *out) ltn_must_check;

#endif /* LTN_CONF_COMMAND_H */
