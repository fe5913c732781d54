/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/reading.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/options.h"
#include "conf/command.h"
#include "serve/when.h"

#define SERVICE_DB "/var/lib/lanterne/lanterne.db"
#define HELP_BYTES (64 * 1024)

static int print_help(const struct ltn_conf_table *t, const char *usage, const char *summary)
{
    struct ltn_buf out;
    ltn_buf_init(&out, HELP_BYTES);
    (void)ltn_buf_printf(&out, "usage: lanterne %s\n%s\n\n", usage, summary);
    int rc = ltn_conf_help(t, &out);
    (void)fputs(ltn_buf_str(&out), stdout);
    ltn_buf_done(&out);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

int ltn_reading_load(const struct ltn_conf_table *t, void *target, const char *usage,
                     const char *summary, int argc, char **argv, struct ltn_conf_args *args)
{
    struct ltn_errinfo info = {0};
    int rc = ltn_conf_init(t, target, &info);
    if (rc == 0) {
        rc = ltn_conf_load_env(t, target, environ, &info);
    }
    if (rc == 0) {
        rc = ltn_conf_load_args(t, target, argc, argv, args, &info);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne %s: %s\n", argv[0], info.msg);
        return LTN_EXIT_USAGE;
    }
    return args->help ? print_help(t, usage, summary) : -1;
}

bool ltn_reading_words(const char *name, const struct ltn_conf_args *args, size_t max)
{
    if (args->word_count <= max) {
        return true;
    }
    (void)fprintf(stderr, "lanterne %s: unexpected '%s'; see lanterne %s --help\n", name,
                  args->words[max], name);
    return false;
}

bool ltn_reading_db_path(const char *db, char *out, size_t size)
{
    struct ltn_invoker who;
    int n;
    if (db[0] != '\0') {
        n = snprintf(out, size, "%s", db);
        return n >= 0 && (size_t)n < size;
    }
    ltn_invoker_find(&who);
    n = snprintf(out, size, "%s/.lanterne/lanterne.db", who.home);
    if (who.home[0] == '\0' || n < 0 || (size_t)n >= size || access(out, F_OK) != 0) {
        n = snprintf(out, size, SERVICE_DB);
    }
    return n >= 0 && (size_t)n < size;
}

struct ltn_record_reader *ltn_reading_open(const char *name, const char *db, int *ret_code)
{
    char path[PATH_MAX];
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    if (!ltn_reading_db_path(db, path, sizeof(path))) {
        (void)fprintf(stderr, "lanterne %s: --db: the path is too long\n", name);
        *ret_code = LTN_EXIT_USAGE;
        return NULL;
    }
    if (ltn_record_reader_open(path, &r, &info) < 0) {
        (void)fprintf(stderr, "lanterne %s: %s\n", name, info.msg);
        *ret_code = LTN_EXIT_CANNOT;
        return NULL;
    }
    return r;
}

static bool take_time(const char *name, const char *option, const char *text, uint64_t *ret_ns)
{
    if (text[0] == '\0' || ltn_parse_when(text, ltn_now_unix_ns(), ret_ns)) {
        return true;
    }
    (void)fprintf(stderr,
                  "lanterne %s: --%s: '%s' is neither a duration such as 5m nor a moment such as "
                  "2026-01-31T12:00:00Z\n",
                  name, option, text);
    return false;
}

bool ltn_reading_times(const char *name, const char *since, const char *from, const char *to,
                       uint64_t *ret_from_ns, uint64_t *ret_to_ns)
{
    *ret_from_ns = 0;
    *ret_to_ns = INT64_MAX; /* what SQL can compare */
    if (since[0] != '\0' && from[0] != '\0') {
        (void)fprintf(stderr, "lanterne %s: --since and --from exclude each other\n", name);
        return false;
    }
    return take_time(name, "since", since, ret_from_ns) &&
           take_time(name, "from", from, ret_from_ns) && take_time(name, "to", to, ret_to_ns);
}

int ltn_reading_exit_code(int rc)
{
    switch (rc) {
    case 0:
        return LTN_EXIT_OK;
    case LTN_ERR_MALFORMED:
    case LTN_ERR_FORBIDDEN:
    case LTN_ERR_CONFIG:
        return LTN_EXIT_USAGE;
    default:
        return LTN_EXIT_CANNOT;
    }
}

bool ltn_reading_flush(FILE *f, struct ltn_buf *b)
{
    bool ok = ltn_buf_error(b) == 0 && fwrite(ltn_buf_str(b), 1, b->len, f) == b->len;
    ltn_buf_reset(b);
    return ok;
}
