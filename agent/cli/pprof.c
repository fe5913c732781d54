/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "http/coding.h"
#include "otlp/pb_write.h"
#include "sql/db.h"

#define PROFILE_BYTES ((size_t)256 << 20)
#define TABLE_MAX     (4U << 20)
#define FRAMES_MAX    256

/* Field numbers of profile.proto. */
enum { P_TYPE = 1, P_SAMPLE, P_MAPPING, P_LOCATION, P_FUNCTION, P_STRING };
enum { P_TIME = 9, P_DURATION = 10, P_DEFAULT_TYPE = 14 };
enum { TYPE_TYPE = 1, TYPE_UNIT };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STR, LABEL_NUM };
enum { MAPPING_ID = 1, MAPPING_LIMIT = 3, MAPPING_FILE = 5, MAPPING_BUILD_ID, MAPPING_FUNCTIONS };
enum { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_LINE };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };

struct profile {
    struct ltn_db *db;
    uint64_t from_ns, to_ns;
    struct ltn_buf out;
    struct ltn_map strings;   /* text -> number + 1 */
    struct ltn_map functions; /* text, a line feed, file -> number */
    struct ltn_map mappings;  /* file, a line feed, build id -> number */
    struct ltn_map frames;    /* frame id -> number of its location */
    struct ltn_map ops;       /* text of an op -> number of its location */
    uint64_t locations;
    int rc;
};

/* Number under a key of a map, given out from 1 on; *fresh says that it is new. */
static uint64_t number(struct profile *p, struct ltn_map *m, const void *key, size_t n, bool *fresh)
{
    uintptr_t have = (uintptr_t)ltn_map_get(m, key, n);
    *fresh = have == 0;
    if (have == 0) {
        have = m->len + 1;
        int rc = ltn_map_put(m, key, n, (void *)have);
        p->rc = p->rc == 0 ? rc : p->rc;
    }
    return have;
}

static uint64_t string_number(struct profile *p, const char *text)
{
    bool fresh;
    uint64_t n = number(p, &p->strings, text, strlen(text), &fresh);
    if (fresh) {
        ltn_pb_put_str_field(&p->out, P_STRING, text);
    }
    return n - 1;
}

/* "a\nb" as a key. */
static uint64_t pair_number(struct profile *p, struct ltn_map *m, const char *a, const char *b,
                            bool *fresh)
{
    struct ltn_buf key;
    ltn_buf_init(&key, 65536);
    (void)ltn_buf_printf(&key, "%s\n%s", a, b);
    uint64_t n = number(p, m, ltn_buf_str(&key), key.len, fresh);
    ltn_buf_done(&key);
    return n;
}

static uint64_t function_number(struct profile *p, const char *name, const char *file)
{
    bool fresh;
    uint64_t n = pair_number(p, &p->functions, name, file, &fresh);
    if (fresh) {
        uint64_t name_number = string_number(p, name);
        uint64_t file_number = string_number(p, file);
        size_t mark = ltn_pb_open(&p->out, P_FUNCTION);
        ltn_pb_put_u64_field(&p->out, FUNCTION_ID, n);
        ltn_pb_put_u64_field(&p->out, FUNCTION_NAME, name_number);
        ltn_pb_put_u64_field(&p->out, FUNCTION_SYSTEM_NAME, name_number);
        ltn_pb_put_u64_field(&p->out, FUNCTION_FILE, file_number);
        ltn_pb_close(&p->out, mark);
    }
    return n;
}

static uint64_t mapping_number(struct profile *p, const char *file, const char *build_id)
{
    bool fresh;
    uint64_t n = pair_number(p, &p->mappings, file, build_id, &fresh);
    if (fresh) {
        uint64_t file_number = string_number(p, file);
        uint64_t build_number = string_number(p, build_id);
        size_t mark = ltn_pb_open(&p->out, P_MAPPING);
        ltn_pb_put_u64_field(&p->out, MAPPING_ID, n);
        ltn_pb_put_u64_field(&p->out, MAPPING_LIMIT, INT64_MAX);
        ltn_pb_put_u64_field(&p->out, MAPPING_FILE, file_number);
        ltn_pb_put_u64_field(&p->out, MAPPING_BUILD_ID, build_number);
        ltn_pb_put_u64_field(&p->out, MAPPING_FUNCTIONS, 1);
        ltn_pb_close(&p->out, mark);
    }
    return n;
}

struct place {
    const char *name;
    const char *file;     /* of the source or the module */
    const char *build_id; /* NULL: not native */
    uint64_t address;
    uint64_t line;
};

static uint64_t put_location(struct profile *p, const struct place *at)
{
    uint64_t id = ++p->locations;
    uint64_t function = function_number(p, at->name, at->file);
    uint64_t mapping = at->build_id != NULL ? mapping_number(p, at->file, at->build_id) : 0;
    size_t mark = ltn_pb_open(&p->out, P_LOCATION);
    ltn_pb_put_u64_field(&p->out, LOCATION_ID, id);
    if (mapping != 0) {
        ltn_pb_put_u64_field(&p->out, LOCATION_MAPPING, mapping);
        ltn_pb_put_u64_field(&p->out, LOCATION_ADDRESS, at->address);
    }
    size_t line = ltn_pb_open(&p->out, LOCATION_LINE);
    ltn_pb_put_u64_field(&p->out, LINE_FUNCTION, function);
    if (at->line != 0) {
        ltn_pb_put_u64_field(&p->out, LINE_LINE, at->line);
    }
    ltn_pb_close(&p->out, line);
    ltn_pb_close(&p->out, mark);
    return id;
}

static uint64_t op_location(struct profile *p, const char *op)
{
    uint64_t id = (uintptr_t)ltn_map_get_str(&p->ops, op);
    if (id == 0) {
        id = put_location(p, &(struct place){.name = op, .file = ""});
        int rc = ltn_map_put_str(&p->ops, op, (void *)(uintptr_t)id);
        p->rc = p->rc == 0 ? rc : p->rc;
    }
    return id;
}

static uint64_t frame_location(struct profile *p, struct ltn_stmt *s)
{
    int64_t frame = ltn_stmt_col_i64(s, 0);
    uint64_t id = (uintptr_t)ltn_map_get_u64(&p->frames, (uint64_t)frame);
    if (id == 0) {
        bool native = ltn_stmt_col_i64(s, 1) == 0;
        id = put_location(p, &(struct place){
                                 .name = ltn_stmt_col_text(s, 2),
                                 .file = ltn_stmt_col_text(s, 3),
                                 .build_id = native ? ltn_stmt_col_text(s, 4) : NULL,
                                 .address = ltn_stmt_col_u64(s, 5),
                                 .line = ltn_stmt_col_u64(s, 6),
                             });
        int rc = ltn_map_put_u64(&p->frames, (uint64_t)frame, (void *)(uintptr_t)id);
        p->rc = p->rc == 0 ? rc : p->rc;
    }
    return id;
}

/* Locations of a stack, innermost first. */
static size_t stack_locations(struct profile *p, int64_t stack, uint64_t *to, size_t room)
{
    struct ltn_stmt *s;
    size_t n = 0;
    int rc = ltn_db_prepare(
        p->db,
        "SELECT f.id, f.kind, CASE f.kind WHEN 1 THEN coalesce(fn.text, '?') ELSE v.text END, "
        "coalesce(fi.text, ''), f.build_id, f.offset, f.line FROM stack_content_frames x JOIN "
        "frames f ON f.id = x.frame_id JOIN stack_frames v ON v.stack_id = x.stack_id AND "
        "v.position = x.position LEFT JOIN strings fn ON fn.id = f.function_id LEFT JOIN strings "
        "fi "
        "ON fi.id = f.file_id WHERE x.stack_id = ? ORDER BY x.position",
        &s);
    if (rc == 0) {
        ltn_stmt_i64(s, 1, stack);
    }
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        if (n < room) {
            to[n++] = frame_location(p, s);
        }
        rc = 0;
    }
    p->rc = p->rc == 0 && rc < 0 ? rc : p->rc;
    return n;
}

static void put_label(struct profile *p, const char *key, const char *text, int64_t value)
{
    uint64_t key_number = string_number(p, key);
    uint64_t text_number = text != NULL ? string_number(p, text) : 0;
    size_t mark = ltn_pb_open(&p->out, SAMPLE_LABEL);
    ltn_pb_put_u64_field(&p->out, LABEL_KEY, key_number);
    if (text != NULL) {
        ltn_pb_put_u64_field(&p->out, LABEL_STR, text_number);
    } else {
        ltn_pb_put_u64_field(&p->out, LABEL_NUM, (uint64_t)value);
    }
    ltn_pb_close(&p->out, mark);
}

/* Row: op, comm, pid, rank, stack, calls, time, blocked, run queue. Strings come into the profile
 * before the message that names them is begun. */
static void put_sample(struct profile *p, struct ltn_stmt *s)
{
    uint64_t at[FRAMES_MAX];
    uint64_t values[4];
    at[0] = op_location(p, ltn_stmt_col_text(s, 0));
    size_t n = 1;
    if (!ltn_stmt_col_null(s, 4)) {
        n += stack_locations(p, ltn_stmt_col_i64(s, 4), at + 1, FRAMES_MAX - 1);
    }
    for (int i = 0; i < 4; i++) {
        values[i] = ltn_stmt_col_u64(s, 5 + i);
    }
    static const char *const keys[] = {"op", "comm", "pid", "rank"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(keys); i++) {
        (void)string_number(p, keys[i]);
    }
    (void)string_number(p, ltn_stmt_col_text(s, 0));
    (void)string_number(p, ltn_stmt_col_text(s, 1));
    size_t mark = ltn_pb_open(&p->out, P_SAMPLE);
    ltn_pb_put_packed_u64(&p->out, SAMPLE_LOCATION, at, n);
    ltn_pb_put_packed_u64(&p->out, SAMPLE_VALUE, values, LTN_ARRAY_SIZE(values));
    put_label(p, "op", ltn_stmt_col_text(s, 0), 0);
    put_label(p, "comm", ltn_stmt_col_text(s, 1), 0);
    put_label(p, "pid", NULL, ltn_stmt_col_i64(s, 2));
    if (!ltn_stmt_col_null(s, 3)) {
        put_label(p, "rank", NULL, ltn_stmt_col_i64(s, 3));
    }
    ltn_pb_close(&p->out, mark);
}

static void put_type(struct profile *p, const char *type, const char *unit)
{
    uint64_t type_number = string_number(p, type);
    uint64_t unit_number = string_number(p, unit);
    size_t mark = ltn_pb_open(&p->out, P_TYPE);
    ltn_pb_put_u64_field(&p->out, TYPE_TYPE, type_number);
    ltn_pb_put_u64_field(&p->out, TYPE_UNIT, unit_number);
    ltn_pb_close(&p->out, mark);
}

static int put_samples(struct profile *p)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(
        p->db,
        "SELECT o.name, coalesce(s.text, '?'), q.pid, q.rank, r.stack_id, sum(c.weight), "
        "sum(c.duration_ns * c.weight), sum(c.blocked_ns * c.weight), sum(c.run_queue_ns * "
        "c.weight), min(c.time_ns), max(c.time_ns + c.duration_ns) FROM calls c JOIN ops o ON o.id "
        "= c.op_id JOIN procs q ON q.id = c.proc_id LEFT JOIN strings s ON s.id = q.comm_id LEFT "
        "JOIN stack_refs r ON r.ref = c.stack_ref WHERE c.time_ns >= ? AND c.time_ns < ? GROUP BY "
        "c.proc_id, c.op_id, r.stack_id ORDER BY 7 DESC",
        &s);
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    if (rc == 0) {
        ltn_stmt_u64(s, 1, p->from_ns);
        ltn_stmt_u64(s, 2, p->to_ns);
    }
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        put_sample(p, s);
        first = ltn_stmt_col_u64(s, 9) < first ? ltn_stmt_col_u64(s, 9) : first;
        last = ltn_stmt_col_u64(s, 10) > last ? ltn_stmt_col_u64(s, 10) : last;
        rc = p->rc;
    }
    if (rc == 0 && last > 0) {
        ltn_pb_put_u64_field(&p->out, P_TIME, first);
        ltn_pb_put_u64_field(&p->out, P_DURATION, last - first);
    }
    return rc;
}

static int build(struct profile *p)
{
    (void)string_number(p, ""); /* the first string must be the empty one */
    put_type(p, "calls", "count");
    put_type(p, "time", "nanoseconds");
    put_type(p, "blocked", "nanoseconds");
    put_type(p, "waiting_for_cpu", "nanoseconds");
    int rc = ltn_db_exec(p->db, "BEGIN");
    if (rc == 0) {
        rc = put_samples(p);
    }
    ltn_db_rollback(p->db);
    ltn_pb_put_u64_field(&p->out, P_DEFAULT_TYPE, string_number(p, "time"));
    rc = rc == 0 ? p->rc : rc;
    return rc == 0 ? ltn_buf_error(&p->out) : rc;
}

int ltn_pprof_write(struct ltn_record_reader *r, uint64_t from_ns, uint64_t to_ns, FILE *f,
                    struct ltn_errinfo *info)
{
    struct profile p = {.db = ltn_record_reader_db(r), .from_ns = from_ns, .to_ns = to_ns};
    struct ltn_map *maps[] = {&p.strings, &p.functions, &p.mappings, &p.frames, &p.ops};
    struct ltn_buf gz;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(maps); i++) {
        ltn_map_init(maps[i], TABLE_MAX);
    }
    ltn_buf_init(&p.out, PROFILE_BYTES);
    ltn_buf_init(&gz, PROFILE_BYTES);
    int rc = build(&p);
    if (rc < 0) {
        const char *why = ltn_db_message(p.db);
        (void)ltn_errinfo_set(info, rc, "%s (%s)", ltn_err_str(rc), why);
    } else {
        rc = ltn_gzip(ltn_buf_str(&p.out), p.out.len, &gz);
        if (rc == 0 && fwrite(ltn_buf_str(&gz), 1, gz.len, f) != gz.len) {
            rc = -EIO;
        }
        if (rc < 0) {
            (void)ltn_errinfo_set(info, rc, "%s",
                                  rc == -EIO ? "the output takes no more" : ltn_err_str(rc));
        }
    }
    ltn_buf_done(&gz);
    ltn_buf_done(&p.out);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(maps); i++) {
        ltn_map_done(maps[i], NULL);
    }
    return rc;
}
