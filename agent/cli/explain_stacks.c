/* SPDX-License-Identifier: Apache-2.0 */
/* Where the calls of an incident were made from. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/explain.h"
#include "cli/table.h"

#define SQL_BYTES 4096
/* Stacks of an incident, frames of a stack. */
#define STACKS_SHOWN 3
#define FRAMES_SHOWN 6
/* An incident is noticed after it began; of one that lasts the newest part is looked at. */
#define BEFORE_NS (20 * LTN_NS_PER_S)
#define NEWEST_NS (120 * LTN_NS_PER_S)

int ltn_explain_stacks_load(struct ltn_explain *e, struct ltn_record_reader *r,
                            struct ltn_errinfo *info)
{
    char sql[SQL_BYTES];
    char pid[48] = "";
    const struct ltn_db_limits limits = {.timeout_ns = 30 * LTN_NS_PER_S};
    if (e->incidents.row_count == 0) {
        return 0;
    }
    if (e->o.pid != 0) {
        (void)snprintf(pid, sizeof(pid), " AND pid = %" PRIu32, e->o.pid);
    }
    (void)snprintf(
        sql, sizeof(sql),
        "SELECT incident, op, calls, total_ns, stack_id, (SELECT group_concat(text, ';') FROM "
        "(SELECT f.text AS text FROM stack_frames f WHERE f.stack_id = x.stack_id AND f.position < "
        "%d ORDER BY f.position)) AS frames FROM (SELECT i.id AS incident, v.op AS op, v.stack_id "
        "AS stack_id, sum(v.weight) AS calls, sum(v.duration_ns * v.weight) AS total_ns, "
        "row_number() OVER (PARTITION BY i.id ORDER BY sum(v.duration_ns * v.weight) DESC) AS "
        "place "
        "FROM (SELECT * FROM incidents WHERE changed_at_ns >= %" PRIu64
        " AND opened_at_ns < %" PRIu64 "%s ORDER BY opened_at_ns DESC LIMIT %" PRIu64
        ") i JOIN events v ON v.pid = i.pid AND v.node = i.node AND v.timestamp_ns BETWEEN "
        "max(i.opened_at_ns - %" PRIu64 ", i.changed_at_ns - %" PRIu64
        ") AND i.changed_at_ns WHERE v.stack_id IS NOT NULL GROUP BY i.id, v.op, v.stack_id) x "
        "WHERE place <= %d ORDER BY incident, place",
        FRAMES_SHOWN, e->o.from_ns, e->o.to_ns, pid, e->o.last, (uint64_t)BEFORE_NS,
        (uint64_t)NEWEST_NS, STACKS_SHOWN);
    return ltn_rows_query(&e->stacks, ltn_record_reader_db(r), sql, &limits, info);
}

static void put_frames(struct ltn_buf *out, const char *frames)
{
    const char *at = frames;
    while (*at != '\0') {
        char text[72];
        size_t n = strcspn(at, ";");
        ltn_text_clean(text, sizeof(text), at, n);
        (void)ltn_buf_printf(out, "              %s\n", text);
        at += n + (at[n] == ';');
    }
}

void ltn_explain_stacks_text(const struct ltn_explain *e, const char *incident, struct ltn_buf *out)
{
    const struct ltn_rows *r = &e->stacks;
    for (size_t i = 0; i < r->row_count; i++) {
        char op[48];
        const char *name = ltn_rows_text(r, i, "op");
        if (strcmp(ltn_rows_text(r, i, "incident"), incident) != 0) {
            continue;
        }
        ltn_text_clean(op, sizeof(op), name, strlen(name));
        (void)ltn_buf_printf(out, "  called    %s, %" PRId64 " recorded, ", op,
                             ltn_rows_i64(r, i, "calls"));
        ltn_table_duration(out, ltn_rows_number(r, i, "total_ns"));
        (void)ltn_buf_puts(out, ", from\n");
        put_frames(out, ltn_rows_text(r, i, "frames"));
    }
}
