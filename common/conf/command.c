/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/command.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define HELP_MAX_BYTES (64U << 10)

int ltn_command_help(const struct ltn_command *commands, size_t n, const char *program,
                     struct ltn_buf *out)
{
    (void)ltn_buf_printf(out, "Usage: %s COMMAND [FLAGS]\n\nCommands:\n", program);
    for (size_t i = 0; i < n; i++) {
        if (commands[i].summary != NULL) {
            (void)ltn_buf_printf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
        }
    }
    (void)ltn_buf_printf(out, "\n\"%s COMMAND --help\" tells about a command.\n", program);
    return ltn_buf_error(out);
}

static int print_help(const struct ltn_command *commands, size_t n, const char *program, FILE *to)
{
    struct ltn_buf text;
    ltn_buf_init(&text, HELP_MAX_BYTES);
    int rc = ltn_command_help(commands, n, program, &text);
    bool ok = rc == 0 && fputs(ltn_buf_str(&text), to) >= 0 && fflush(to) == 0;
    ltn_buf_done(&text);
    return ok ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

static const struct ltn_command *find(const struct ltn_command *commands, size_t n,
                                      const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int unknown(const struct ltn_command *commands, size_t n, const char *program,
                   const char *name)
{
    const char *best = NULL;
    unsigned least = UINT_MAX;
    char shown[48];
    ltn_text_clean(shown, sizeof(shown), name, strlen(name));
    for (size_t i = 0; i < n; i++) {
        unsigned d = ltn_edit_distance(commands[i].name, name);
        if (d < least) {
            least = d;
            best = commands[i].name;
        }
    }
    /* A word that shares little with every command is no slip of the pen. */
    if (best == NULL || least > 1 + strlen(name) / 3) {
        (void)fprintf(stderr, "%s: unknown command \"%s\"; see %s --help\n", program, shown,
                      program);
    } else {
        (void)fprintf(stderr, "%s: unknown command \"%s\"; did you mean \"%s\"?\n", program, shown,
                      best);
    }
    return LTN_EXIT_USAGE;
}

int ltn_command_dispatch(const struct ltn_command *commands, size_t n, const char *program,
                         int argc, char **argv)
{
    if (argc < 2) {
        (void)print_help(commands, n, program, stderr);
        return LTN_EXIT_USAGE;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (help && argc == 2) {
        return print_help(commands, n, program, stdout);
    }
    if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    const struct ltn_command *c = find(commands, n, help ? argv[2] : name);
    if (c == NULL) {
        return unknown(commands, n, program, help ? argv[2] : name);
    }
    if (help) {
        char flag[] = "--help";
        char *help_argv[] = {argv[2], flag, NULL};
        return c->run(2, help_argv);
    }
    return c->run(argc - 1, argv + 1);
}
