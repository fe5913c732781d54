/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check_price.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/clock.h"
#include "record/reader.h"
#include "serve/rows.h"

#define PRICE_HIGH_NS 5000.0
#define RECENT_NS     (180 * LTN_NS_PER_S)
#define ROW_BYTES     ((size_t)1024 * 1024)
#define QUERY_NS      (2 * LTN_NS_PER_S)

void ltn_check_price(const struct ltn_probe_price *price, double budget_pct,
                     struct ltn_finding *ret)
{
    *ret = (struct ltn_finding){.name = "price", .level = LTN_FINDING_OK};
    if (!price->measured) {
        ret->level = LTN_FINDING_WARN;
        (void)snprintf(ret->value, sizeof(ret->value), "not measured: the probe did not count");
        return;
    }
    int n = snprintf(ret->value, sizeof(ret->value),
                     "%.2f us a timed call, %.2f us a counted one, %.1f us more if stepped",
                     price->pair_ns / 1e3, price->entry_ns / 1e3, price->step_ns / 1e3);
    if (budget_pct > 0.0 && n > 0 && (size_t)n < sizeof(ret->value)) {
        (void)snprintf(ret->value + n, sizeof(ret->value) - (size_t)n,
                       "; the budget of %g %% allows %.0f timed calls/s to a process", budget_pct,
                       budget_pct * 1e7 / price->pair_ns);
    }
    if (price->pair_ns > PRICE_HIGH_NS) {
        ret->level = LTN_FINDING_WARN;
        (void)snprintf(ret->advice, sizeof(ret->advice),
                       "dearer than usual: the machine is busy, or its kernel steps through the "
                       "probe");
    }
}

static void say_detail(const struct ltn_rows *rows, struct ltn_finding *ret)
{
    const char *detail = ltn_rows_text(rows, 0, "detail");
    int64_t thin = ltn_rows_i64(rows, 0, "thin");
    double share = ltn_rows_number(rows, 0, "probe_share") * 100.0;
    double own = ltn_rows_number(rows, 0, "own_share") * 100.0;
    int64_t pid = ltn_rows_i64(rows, 0, "probe_pid");
    bool full = strcmp(detail, "full") == 0;
    ret->level = full ? LTN_FINDING_OK : LTN_FINDING_WARN;
    int n = snprintf(ret->value, sizeof(ret->value), "%s%.20s; the agent takes %.1f %% of a core",
                     full ? "" : "down to ", detail, own);
    if (pid != 0 && n > 0 && (size_t)n < sizeof(ret->value)) {
        n += snprintf(ret->value + n, sizeof(ret->value) - (size_t)n,
                      ", probes %.1f %% of process %" PRId64, share, pid);
    }
    if (thin > 1 && n > 0 && (size_t)n < sizeof(ret->value)) {
        (void)snprintf(ret->value + n, sizeof(ret->value) - (size_t)n,
                       ", one record in %" PRId64 " kept", thin);
    }
    if (!full) {
        (void)snprintf(ret->advice, sizeof(ret->advice),
                       "the log says why; leave a process out with --pid, --user or --cgroup, or "
                       "raise --budget");
    }
}

bool ltn_check_detail(const char *db_path, struct ltn_finding *ret)
{
    static const char sql[] =
        "SELECT h.detail, h.thin, h.probe_share, h.probe_pid, h.own_share, w.end_ns FROM "
        "agent_health h JOIN windows w ON w.id = h.window_id WHERE h.detail IS NOT NULL ORDER BY "
        "h.window_id DESC LIMIT 1";
    const struct ltn_db_limits limits = {
        .timeout_ns = QUERY_NS, .max_rows = 1, .max_bytes = ROW_BYTES};
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    struct ltn_rows rows;
    *ret = (struct ltn_finding){.name = "detail"};
    if (ltn_record_reader_open(db_path, &r, &info) < 0) {
        return false;
    }
    ltn_rows_init(&rows, ROW_BYTES);
    bool found = ltn_rows_query(&rows, ltn_record_reader_db(r), sql, &limits, &info) == 0 &&
                 rows.row_count == 1 &&
                 (uint64_t)ltn_rows_i64(&rows, 0, "end_ns") + RECENT_NS > ltn_now_unix_ns();
    if (found) {
        say_detail(&rows, ret);
    }
    ltn_rows_done(&rows);
    ltn_record_reader_close(r);
    return found;
}
