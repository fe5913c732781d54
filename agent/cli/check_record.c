/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check_record.h"

#include <inttypes.h>
#include <stdio.h>

#include "record/reader.h"

static const char statement[] =
    "SELECT json_extract(h.drops, '$.impossible'), json_extract(h.drops, '$.argument'),"
    " h.calls_seen FROM agent_health h ORDER BY h.window_id DESC LIMIT 1";

static bool read_counts(struct ltn_db *db, uint64_t *impossible, uint64_t *unread, uint64_t *calls)
{
    struct ltn_stmt *s;
    bool found = ltn_db_prepare(db, statement, &s) == 0 && ltn_stmt_step(s) == 1;
    if (found) {
        *impossible = ltn_stmt_col_u64(s, 0);
        *unread = ltn_stmt_col_u64(s, 1);
        *calls = ltn_stmt_col_u64(s, 2);
        ltn_stmt_reset(s);
    }
    return found;
}

bool ltn_check_arguments(const char *path, struct ltn_finding *ret)
{
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    uint64_t impossible = 0;
    uint64_t unread = 0;
    uint64_t calls = 0;
    if (ltn_record_reader_open(path, &r, &info) < 0) {
        return false;
    }
    bool found = read_counts(ltn_record_reader_db(r), &impossible, &unread, &calls);
    ltn_record_reader_close(r);
    if (!found) {
        return false;
    }
    *ret = (struct ltn_finding){.name = "arguments", .level = LTN_FINDING_OK};
    (void)snprintf(ret->value, sizeof(ret->value),
                   "of %" PRIu64 " calls %" PRIu64 " read as what they cannot be, %" PRIu64
                   " not readable",
                   calls, impossible, unread);
    if (impossible > 0) {
        ret->level = LTN_FINDING_WARN;
        (void)snprintf(ret->advice, sizeof(ret->advice),
                       "a library passes arguments in another way than this version knows: bytes "
                       "and directions are not to be trusted, counts and times are; the agent's "
                       "log names the function, please report it with the library's version");
    }
    return true;
}
