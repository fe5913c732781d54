/* SPDX-License-Identifier: Apache-2.0 */
#include "record/reader.h"

#include <errno.h>
#include <stdlib.h>

#include "record/hist_blob.h"
#include "record/schema.h"

struct ltn_record_reader {
    struct ltn_db *db;
};

static int check_schema(struct ltn_db *db, const char *path, struct ltn_errinfo *info)
{
    int64_t application = 0;
    int64_t version = 0;
    int rc = ltn_db_get_i64(db, "PRAGMA application_id", &application);
    if (rc == 0) {
        rc = ltn_db_get_i64(db, "PRAGMA user_version", &version);
    }
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "%s: %s", path, ltn_db_message(db));
    }
    if (application != LTN_RECORD_APPLICATION_ID) {
        return ltn_errinfo_set(info, LTN_ERR_UNSUPPORTED, "%s: not a record of lanterne", path);
    }
    if (version < 1 || (uint64_t)version > ltn_record_migration_count) {
        return ltn_errinfo_set(info, LTN_ERR_UNSUPPORTED,
                               "%s: schema version %lld, this program knows up to %zu", path,
                               (long long)version, ltn_record_migration_count);
    }
    return 0;
}

/* A record that no writer of this version has opened yet reads as if it had what came since. */
static int stand_in(struct ltn_db *db)
{
    static const struct {
        const char *asks; /* 0: it is from before */
        const char *views;
    } steps[] = {
        {"SELECT count(*) FROM sqlite_master WHERE name = 'stack_refs'", ltn_record_before_stacks},
        {"SELECT count(*) FROM pragma_table_info('agent_health') WHERE name = 'attached_files'",
         ltn_record_before_coverage},
        {"SELECT count(*) FROM pragma_table_info('agent_health') WHERE name = 'detail'",
         ltn_record_before_price},
        {"SELECT count(*) FROM pragma_table_info('op_windows') WHERE name = 'replayed'",
         ltn_record_before_replays},
    };
    int rc = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(steps) && rc == 0; i++) {
        int64_t has = 0;
        rc = ltn_db_get_i64(db, steps[i].asks, &has);
        if (rc == 0 && has == 0) {
            rc = ltn_db_exec(db, steps[i].views);
        }
    }
    return rc;
}

int ltn_record_reader_open(const char *path, struct ltn_record_reader **ret_reader,
                           struct ltn_errinfo *info)
{
    struct ltn_record_reader *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    int rc = ltn_db_open_readonly(path, &r->db, info);
    if (rc == 0) {
        rc = check_schema(r->db, path, info);
    }
    if (rc == 0) {
        rc = ltn_hist_blob_register(r->db);
        if (rc == 0) {
            rc = ltn_db_exec(r->db, ltn_record_reader_views);
        }
        if (rc == 0) {
            rc = stand_in(r->db);
        }
        if (rc < 0) {
            (void)ltn_errinfo_set(info, rc, "%s: %s", path, ltn_db_message(r->db));
        }
    }
    if (rc < 0) {
        ltn_record_reader_close(r);
        return rc;
    }
    *ret_reader = r;
    return 0;
}

void ltn_record_reader_close(struct ltn_record_reader *r)
{
    if (r != NULL) {
        ltn_db_close(r->db);
        free(r);
    }
}

int ltn_record_query(struct ltn_record_reader *r, const char *sql,
                     const struct ltn_db_limits *limits, const struct ltn_db_sink *sink,
                     struct ltn_db_query_result *ret, struct ltn_errinfo *info)
{
    return ltn_db_query(r->db, sql, limits, sink, ret, info);
}

struct ltn_db *ltn_record_reader_db(struct ltn_record_reader *r)
{
    return r->db;
}
