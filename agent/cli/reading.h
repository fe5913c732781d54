/* SPDX-License-Identifier: Apache-2.0 */
/* What the reading subcommands share: options, the place of the database, output. Main thread. */
#ifndef LTN_CLI_READING_H
#define LTN_CLI_READING_H

#include <stdbool.h>
#include <stdio.h>

#include "conf/conf.h"
#include "record/reader.h"

/* Loads options of a reading subcommand from defaults, environment and argv; handles --help itself.
 * usage: what follows "usage: lanterne ". Words are left in *args, to be freed by the caller in
 * either case, like *target. Returns -1 to go on or the exit code to leave with. */
int ltn_reading_load(const struct ltn_conf_table *t, void *target, const char *usage,
                     const char *summary, int argc, char **argv, struct ltn_conf_args *args);

/* Says "lanterne NAME: unexpected 'word'" when there are more than max words; true when fine. */
bool ltn_reading_words(const char *name, const struct ltn_conf_args *args, size_t max);

/* db, or the invoker's database, or the service's. False when the path is too long. */
bool ltn_reading_db_path(const char *db, char *out, size_t size);

/* Opens the record there, or says on stderr why not: NULL. *ret_code gets the exit code then. */
struct ltn_record_reader *ltn_reading_open(const char *name, const char *db, int *ret_code);

/* --since, --from and --to as Unix ns (0 and UINT64_MAX: open ends). False after a message. */
bool ltn_reading_times(const char *name, const char *since, const char *from, const char *to,
                       uint64_t *ret_from_ns, uint64_t *ret_to_ns);

/* Exit code for an error of a statement or an option. */
int ltn_reading_exit_code(int rc);

/* Writes a buffer to a stream and empties it; false when that failed. */
bool ltn_reading_flush(FILE *f, struct ltn_buf *b);

#endif /* LTN_CLI_READING_H */
