/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/map.h"
#include "cli/merge_skew.h"
#include "record/reader.h"
#include "record/schema.h"
#include "sql/db.h"

#define MAP_ENTRIES ((size_t)64 << 20)
#define SQL_BYTES   ((size_t)16 << 10)
/* Value of a map for a window that is left out. 0 cannot be stored. */
#define SKIP ((void *)UINTPTR_MAX)

/*
 * How each table is copied, a letter a column: K new id, N node, O op, P process, G gpu, W window,
 * I incident name, i integer, r real, t text, b blob. Rows of a window that is left out are left
 * out too.
 */
struct table {
    const char *name;
    const char *columns;
    const char *kinds;
};

static const struct table tables[] = {
    {"windows", "id,node_id,start_ns,end_ns,sequence", "KNiii"},
    {"op_windows",
     "window_id,proc_id,op_id,calls,returns,errors,bytes,duration_ns,off_cpu_ns,run_queue_ns,"
     "max_ns,calls_total,replayed,replayed_bytes,hist",
     "WPOiiiiiiiiiiib"},
    {"rank_windows",
     "window_id,proc_id,tid,steps,steps_total,step_ns,self_ns,peer_wait_ns,on_cpu_ns,run_queue_ns,"
     "device_ns,futex_ns,read_ns,write_ns,poll_ns,sleep_ns,disk_ns,child_ns,fault_ns,other_ns,"
     "major_faults,minor_faults,coverage,collectives_per_step",
     "WPirirrrrrrrrrrrrrrrrrri"},
    {"preemptors",
     "window_id,proc_id,position,comm_id,by_pid,cgroup_id,waited_ns,times,by_tid,cgroup_path_id",
     "WPiSiiiiiS"},
    {"communicators",
     "window_id,proc_id,comm_id,rank,ranks,sequence_total,bytes_total,collectives,signature",
     "WPiiiiiii"},
    {"gpu_samples",
     "window_id,gpu_id,sm_clock_hz,sm_clock_max_hz,throttle_reasons,utilization,memory_used_bytes,"
     "memory_total_bytes,power_w,temperature_c,pcie_width,pcie_width_max,pcie_generation,"
     "pcie_generation_max,ecc_uncorrected",
     "WGrrirrrrriiiir"},
    {"agent_health",
     "window_id,calls_seen,records_emitted,records_read,drops,windows_dropped,records_dropped,"
     "map_bytes,cpu_seconds,rss_bytes,traced_processes,attached_probes,attached_files,"
     "unattached_files,hidden_processes,silent_processes,silent_total,attach_delay_max_ns,detail,"
     "thin,thinned,probe_share,probe_pid,own_share,pair_ns",
     "Wiiitiiiriiiiiiiiitiirirr"},
    {"host_processes",
     "window_id,proc_id,parent_pid,page_bytes,reclaims,reclaim_ns,opens,open_ns,opens_failed,"
     "opens_missing,opens_slow,opens_untold,socket_calls,socket_sent_bytes,socket_received_bytes,"
     "socket_untold,block_read_bytes,block_written_bytes",
     "WPiiiiiiiiiiiiiiii"},
    {"host_block",
     "window_id,proc_id,disk,major,minor,op,requests,bytes,errors,queued_ns,service_ns,max_ns,"
     "depth,depth_max",
     "WPtiitiiiiiiri"},
    {"host_net",
     "window_id,proc_id,protocol,peer,port,side,sends,sent_bytes,receives,received_bytes,"
     "would_block,failed",
     "WPttitiiiiii"},
    {"host_retransmits", "window_id,proc_id,local,local_port,peer,peer_port,segments,handshake",
     "WPtitiii"},
    {"host_files", "window_id,proc_id,path,failed,missing,slow,spent_ns,max_ns,last_errno",
     "WPtiiiiii"},
    {"host_throttles", "window_id,proc_id,path,periods,throttled,throttled_ns", "WPtiii"},
    {"host_events", "window_id,proc_id,time_ns,type,parent_pid,exit_code", "WPitii"},
    {"host_states",
     "window_id,cpus,cpu_busy,load1,memory_total_bytes,memory_available_bytes,swap_total_bytes,"
     "swap_used_bytes,pressure_cpu,pressure_memory,pressure_io",
     "Wirriiiirrr"},
    {"calls",
     "id,time_ns,proc_id,tid,op_id,duration_ns,on_cpu_ns,run_queue_ns,blocked_ns,bytes,handle,"
     "comm_id,sequence,segment_ns,weight,result,major_faults,minor_faults,flags,kind,stack_ref",
     "KiPiOiiiiiiiiiiiiiiii"},
    {"incident_changes",
     "id,node_id,incident,time_ns,opened_ns,state,kind,severity,title,root_cause,explained_share,"
     "count,proc_id,evidence",
     "KNIiittttt"
     "riPt"},
    /* Rebuilt by name, in learn_*. */
    {"strings", "id,text", NULL},
    {"nodes", "id,name,boot_id", NULL},
    {"ops", "id,source,name,class", NULL},
    {"gpus", "id,node_id,uuid,model", NULL},
    {"procs",
     "id,node_id,pid,start_ns,comm_id,job_id,rank,world_size,local_rank,gpu_id,first_seen_ns,"
     "last_seen_ns,ended_ns",
     NULL},
    {"frames", "id,kind,function_id,file_id,build_id,offset,line", NULL},
    {"stack_contents", "id,hash,truncated", NULL},
    /* Shared with what is there, in copy_stacks. */
    {"stack_content_frames", "stack_id,position,frame_id", NULL},
    {"stack_refs", "ref,proc_id,stack_id", NULL},
    /* Left out: what a running agent still has to push, and facts about one file. */
    {"outbox", "id,signal,created_ns,sequence,attempts,bytes", NULL},
    {"meta", "key,value", NULL},
};

const char *ltn_merge_table(size_t i, const char **ret_columns)
{
    if (i >= LTN_ARRAY_SIZE(tables)) {
        return NULL;
    }
    *ret_columns = tables[i].columns;
    return tables[i].name;
}

enum map_kind { STRINGS, NODES, OPS, GPUS, PROCS, WINDOWS, FRAMES, STACKS, MAPS };

struct merge {
    const struct ltn_merge_opts *o;
    struct ltn_merge_result *result;
    struct ltn_db *out;
    /* of the present input */
    struct ltn_db *in;
    struct ltn_map maps[MAPS]; /* id there -> id here */
    unsigned input;
    int64_t incidents_before; /* newest change that came from inputs before */
    bool seen_node;           /* a node of this input was in one before */
    int64_t next[2];          /* new ids of calls and of other tables with K */
};

static int64_t mapped(const struct merge *m, enum map_kind kind, int64_t id)
{
    return (int64_t)(intptr_t)ltn_map_get_u64(&m->maps[kind], (uint64_t)id);
}

static int remember(struct merge *m, enum map_kind kind, int64_t there, int64_t here)
{
    return ltn_map_put_u64(&m->maps[kind], (uint64_t)there, (void *)(intptr_t)here);
}

/* Runs a statement that gives an id; the statement is reset. */
static int take_id(struct ltn_stmt *s, int64_t *ret)
{
    int rc = ltn_stmt_step(s);
    if (rc == 1) {
        *ret = ltn_stmt_col_i64(s, 0);
        ltn_stmt_reset(s);
        return 0;
    }
    return rc < 0 ? rc : LTN_ERR_NOT_FOUND;
}

/* NULL stays NULL; an id that leads nowhere becomes NULL too. */
static void bind_mapped(const struct merge *m, struct ltn_stmt *to, int at, struct ltn_stmt *from,
                        int column, enum map_kind kind)
{
    int64_t id =
        ltn_stmt_col_null(from, column) ? 0 : mapped(m, kind, ltn_stmt_col_i64(from, column));
    if (id == 0) {
        ltn_stmt_null(to, at);
    } else {
        ltn_stmt_i64(to, at, id);
    }
}

/* ---- what the others point to ---- */

static void bind_i64(struct ltn_stmt *to, int at, struct ltn_stmt *from, int column)
{
    if (ltn_stmt_col_null(from, column)) {
        ltn_stmt_null(to, at);
    } else {
        ltn_stmt_i64(to, at, ltn_stmt_col_i64(from, column));
    }
}

static void bind_text(struct ltn_stmt *to, int at, struct ltn_stmt *from, int column)
{
    ltn_stmt_text(to, at, ltn_stmt_col_null(from, column) ? NULL : ltn_stmt_col_text(from, column));
}

/* Copies rows (id first) into a statement that returns the id here; fill binds its parameters. */
static int learn(struct merge *m, enum map_kind kind, const char *select, const char *insert,
                 void (*fill)(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from))
{
    struct ltn_stmt *from;
    struct ltn_stmt *to;
    int rc = ltn_db_prepare(m->in, select, &from);
    while (rc == 0 && (rc = ltn_stmt_step(from)) == 1) {
        int64_t id = 0;
        rc = ltn_db_prepare(m->out, insert, &to);
        if (rc == 0) {
            fill(m, to, from);
            rc = take_id(to, &id);
        }
        if (rc == 0) {
            rc = remember(m, kind, ltn_stmt_col_i64(from, 0), id);
        }
    }
    return rc;
}

static void fill_string(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    (void)m;
    bind_text(to, 1, from, 1);
}

static void fill_node(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    ltn_stmt_text(to, 1, m->o->force_node != NULL ? m->o->force_node : ltn_stmt_col_text(from, 1));
    bind_text(to, 2, from, 2);
}

static void fill_op(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    (void)m;
    for (int i = 1; i <= 3; i++) {
        bind_text(to, i, from, i);
    }
}

static void fill_gpu(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    bind_mapped(m, to, 1, from, 1, NODES);
    bind_text(to, 2, from, 2);
    bind_text(to, 3, from, 3);
}

static void fill_proc(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    bind_mapped(m, to, 1, from, 1, NODES);
    bind_i64(to, 2, from, 2);
    bind_i64(to, 3, from, 3);
    bind_mapped(m, to, 4, from, 4, STRINGS);
    bind_mapped(m, to, 5, from, 5, STRINGS);
    for (int i = 6; i <= 8; i++) {
        bind_i64(to, i, from, i);
    }
    bind_mapped(m, to, 9, from, 9, GPUS);
    for (int i = 10; i <= 12; i++) {
        bind_i64(to, i, from, i);
    }
}

/* 0 stands for no text. */
static void fill_frame(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    bind_i64(to, 1, from, 1);
    ltn_stmt_i64(to, 2, mapped(m, STRINGS, ltn_stmt_col_i64(from, 2)));
    ltn_stmt_i64(to, 3, mapped(m, STRINGS, ltn_stmt_col_i64(from, 3)));
    bind_text(to, 4, from, 4);
    bind_i64(to, 5, from, 5);
    bind_i64(to, 6, from, 6);
}

static void fill_stack(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from)
{
    (void)m;
    bind_i64(to, 1, from, 1);
    bind_i64(to, 2, from, 2);
}

static int learn_names(struct merge *m)
{
    static const struct {
        enum map_kind kind;
        const char *select;
        const char *insert;
        void (*fill)(struct merge *m, struct ltn_stmt *to, struct ltn_stmt *from);
    } steps[] = {
        {STRINGS, "SELECT id, text FROM strings",
         "INSERT INTO strings (text) VALUES (?) ON CONFLICT (text) DO UPDATE SET text = "
         "excluded.text RETURNING id",
         fill_string},
        {NODES, "SELECT id, name, boot_id FROM nodes",
         "INSERT INTO nodes (name, boot_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET boot_id "
         "= excluded.boot_id RETURNING id",
         fill_node},
        {OPS, "SELECT id, source, name, class FROM ops",
         "INSERT INTO ops (source, name, class) VALUES (?, ?, ?) ON CONFLICT (source, name) DO "
         "UPDATE SET class = excluded.class RETURNING id",
         fill_op},
        {GPUS, "SELECT id, node_id, uuid, model FROM gpus",
         "INSERT INTO gpus (node_id, uuid, model) VALUES (?, ?, ?) ON CONFLICT (node_id, uuid) DO "
         "UPDATE SET model = excluded.model RETURNING id",
         fill_gpu},
        {PROCS,
         "SELECT id, node_id, pid, start_ns, comm_id, job_id, rank, world_size, local_rank, gpu_id,"
         " first_seen_ns, last_seen_ns, ended_ns FROM procs",
         "INSERT INTO procs (node_id, pid, start_ns, comm_id, job_id, rank, world_size, local_rank,"
         " gpu_id, first_seen_ns, last_seen_ns, ended_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
         "?) ON CONFLICT (node_id, pid, start_ns) DO UPDATE SET first_seen_ns = min(first_seen_ns, "
         "excluded.first_seen_ns), last_seen_ns = max(last_seen_ns, excluded.last_seen_ns), "
         "ended_ns = coalesce(excluded.ended_ns, ended_ns) RETURNING id",
         fill_proc},
        {FRAMES, "SELECT id, kind, function_id, file_id, build_id, offset, line FROM frames",
         "INSERT INTO frames (kind, function_id, file_id, build_id, offset, line) VALUES (?, ?, ?, "
         "?, ?, ?) ON CONFLICT DO UPDATE SET kind = excluded.kind RETURNING id",
         fill_frame},
        {STACKS, "SELECT id, hash, truncated FROM stack_contents",
         "INSERT INTO stack_contents (hash, truncated) VALUES (?, ?) ON CONFLICT (hash) DO UPDATE "
         "SET hash = excluded.hash RETURNING id",
         fill_stack},
    };
    int64_t nodes_before = 0;
    int64_t nodes_after = 0;
    int64_t nodes_there = 0;
    int rc = ltn_db_get_i64(m->out, "SELECT count(*) FROM nodes", &nodes_before);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(steps) && rc == 0; i++) {
        rc = learn(m, steps[i].kind, steps[i].select, steps[i].insert, steps[i].fill);
    }
    if (rc == 0) {
        rc = ltn_db_get_i64(m->out, "SELECT count(*) FROM nodes", &nodes_after);
    }
    if (rc == 0) {
        rc = ltn_db_get_i64(m->in, "SELECT count(*) FROM nodes", &nodes_there);
    }
    m->seen_node = m->o->force_node == NULL && nodes_after - nodes_before < nodes_there;
    return rc;
}

/* Which frames a stack has, and which stack a call's reference leads to. What an input before
 * brought is the same, as equal contents are one row. */
static int copy_stacks(struct merge *m)
{
    static const struct {
        const char *select;
        const char *insert;
        enum map_kind first, second; /* MAPS: taken as it is */
        enum map_kind third;
    } steps[] = {
        {"SELECT stack_id, position, frame_id FROM stack_content_frames",
         "INSERT OR IGNORE INTO stack_content_frames (stack_id, position, frame_id) VALUES (?, ?, "
         "?)",
         STACKS, MAPS, FRAMES},
        {"SELECT ref, proc_id, stack_id FROM stack_refs",
         "INSERT OR IGNORE INTO stack_refs (ref, proc_id, stack_id) VALUES (?, ?, ?)", MAPS, PROCS,
         STACKS},
    };
    int rc = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(steps) && rc == 0; i++) {
        const enum map_kind kinds[] = {steps[i].first, steps[i].second, steps[i].third};
        struct ltn_stmt *from;
        struct ltn_stmt *to;
        rc = ltn_db_prepare(m->in, steps[i].select, &from);
        while (rc == 0 && (rc = ltn_stmt_step(from)) == 1) {
            rc = ltn_db_prepare(m->out, steps[i].insert, &to);
            for (int c = 0; c < 3 && rc == 0; c++) {
                if (kinds[c] == MAPS) {
                    bind_i64(to, c + 1, from, c);
                } else {
                    bind_mapped(m, to, c + 1, from, c, kinds[c]);
                }
            }
            rc = rc == 0 ? ltn_stmt_run(to) : rc;
        }
    }
    return rc;
}

/* ---- rows ---- */

/* Whether a trusted statement with up to four parameters from the row finds something. */
static int found(struct ltn_stmt *s)
{
    int rc = ltn_stmt_step(s);
    if (rc == 1) {
        ltn_stmt_reset(s);
    }
    return rc;
}

/* 1 when an input before had this very row; asked only when a node comes twice. */
static int is_duplicate(struct merge *m, const struct table *t, struct ltn_stmt *row)
{
    struct ltn_stmt *s;
    int rc;
    if (!m->seen_node) {
        return 0;
    }
    if (strcmp(t->name, "windows") == 0) {
        rc =
            ltn_db_prepare(m->out,
                           "SELECT 1 FROM windows WHERE node_id = ? AND start_ns = ? AND end_ns = ?"
                           " AND sequence = ?",
                           &s);
        if (rc == 0) {
            bind_mapped(m, s, 1, row, 1, NODES);
            bind_i64(s, 2, row, 2);
            bind_i64(s, 3, row, 3);
            bind_i64(s, 4, row, 4);
            rc = found(s);
        }
        return rc;
    }
    if (strcmp(t->name, "calls") == 0) {
        rc = ltn_db_prepare(m->out,
                            "SELECT 1 FROM calls WHERE time_ns = ? AND proc_id = ? AND tid = ? AND "
                            "op_id = ?",
                            &s);
        if (rc == 0) {
            bind_i64(s, 1, row, 1);
            bind_mapped(m, s, 2, row, 2, PROCS);
            bind_i64(s, 3, row, 3);
            bind_mapped(m, s, 4, row, 4, OPS);
            rc = found(s);
        }
        return rc;
    }
    if (strcmp(t->name, "incident_changes") != 0) {
        return 0;
    }
    rc = ltn_db_prepare(m->out,
                        "SELECT 1 FROM incident_changes WHERE node_id = ? AND incident = ? AND "
                        "time_ns = ? AND state = ?",
                        &s);
    if (rc == 0) {
        bind_mapped(m, s, 1, row, 1, NODES);
        bind_text(s, 2, row, 2);
        bind_i64(s, 3, row, 3);
        bind_text(s, 4, row, 5);
        rc = found(s);
    }
    return rc;
}

/* Name of an incident here: its own unless an incident of another node (or, with a forced name, of
 * another input) has it. */
static int incident_name(struct merge *m, struct ltn_stmt *row, int column, char out[512])
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(m->out,
                            "SELECT 1 FROM incident_changes WHERE incident = ? AND id <= ? AND (? "
                            "OR node_id <> ?) LIMIT 1",
                            &s);
    if (rc < 0) {
        return rc;
    }
    bind_text(s, 1, row, column);
    ltn_stmt_i64(s, 2, m->incidents_before);
    ltn_stmt_i64(s, 3, m->o->force_node != NULL);
    bind_mapped(m, s, 4, row, 1, NODES);
    rc = found(s);
    if (rc >= 0) {
        const char *name = ltn_stmt_col_text(row, column);
        if (rc == 1) {
            (void)snprintf(out, 512, "%.400s#%u", name, m->input + 1);
        } else {
            (void)snprintf(out, 512, "%.500s", name);
        }
    }
    return rc < 0 ? rc : 0;
}

static void bind_column(struct merge *m, struct ltn_stmt *to, int at, struct ltn_stmt *from, int c,
                        char kind)
{
    static const struct {
        char letter;
        enum map_kind map;
    } ids[] = {{'S', STRINGS}, {'N', NODES}, {'O', OPS}, {'G', GPUS}, {'P', PROCS}, {'W', WINDOWS}};
    size_t n = 0;
    if (ltn_stmt_col_null(from, c)) {
        ltn_stmt_null(to, at);
        return;
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(ids); i++) {
        if (ids[i].letter == kind) {
            bind_mapped(m, to, at, from, c, ids[i].map);
            return;
        }
    }
    if (kind == 'r') {
        ltn_stmt_f64(to, at, ltn_stmt_col_f64(from, c));
    } else if (kind == 't') {
        ltn_stmt_text(to, at, ltn_stmt_col_text(from, c));
    } else if (kind == 'b') {
        const void *p = ltn_stmt_col_blob(from, c, &n);
        ltn_stmt_blob(to, at, p, n);
    } else {
        ltn_stmt_i64(to, at, ltn_stmt_col_i64(from, c));
    }
}

static int insert_row(struct merge *m, const struct table *t, struct ltn_stmt *to,
                      struct ltn_stmt *from, int64_t *id)
{
    char incident[512];
    for (int c = 0; t->kinds[c] != '\0'; c++) {
        if (t->kinds[c] == 'K') {
            ltn_stmt_i64(to, c + 1, ++*id);
        } else if (t->kinds[c] == 'I') {
            int rc = incident_name(m, from, c, incident);
            if (rc < 0) {
                return rc;
            }
            ltn_stmt_text(to, c + 1, incident);
        } else {
            bind_column(m, to, c + 1, from, c, t->kinds[c]);
        }
    }
    return ltn_stmt_run(to);
}

static int make_insert(const struct table *t, struct ltn_buf *b)
{
    ltn_buf_init(b, SQL_BYTES);
    (void)ltn_buf_printf(b, "INSERT INTO %s (%s) VALUES (?", t->name, t->columns);
    for (size_t i = 1; i < strlen(t->kinds); i++) {
        (void)ltn_buf_puts(b, ",?");
    }
    (void)ltn_buf_putc(b, ')');
    return ltn_buf_error(b);
}

/* Has the input this column? A record of an older version may lack it, or the whole table. */
static int has_column(struct merge *m, const char *table, const char *column, size_t n)
{
    struct ltn_stmt *s;
    char name[64];
    (void)snprintf(name, sizeof(name), "%.*s", (int)n, column);
    int rc = ltn_db_prepare(m->in, "SELECT 1 FROM pragma_table_info(?) WHERE name = ?", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 1, table);
    ltn_stmt_text(s, 2, name);
    return found(s);
}

/* What a column holds in rows from before it was added, as SQL. */
static int put_default(struct merge *m, const char *table, const char *column, size_t n,
                       struct ltn_buf *b)
{
    struct ltn_stmt *s;
    char name[64];
    (void)snprintf(name, sizeof(name), "%.*s", (int)n, column);
    int rc = ltn_db_prepare(
        m->out, "SELECT coalesce(dflt_value, 'NULL') FROM pragma_table_info(?) WHERE name = ?", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 1, table);
    ltn_stmt_text(s, 2, name);
    rc = ltn_stmt_step(s);
    if (rc == 1) {
        rc = ltn_buf_puts(b, ltn_stmt_col_text(s, 0));
        ltn_stmt_reset(s);
        return rc;
    }
    return rc < 0 ? rc : LTN_ERR_NOT_FOUND;
}

/* Selects the columns of a table; the default of what the input does not have. 1, 0 when it has not
 * even the first, or negative. */
static int make_select(struct merge *m, const struct table *t, struct ltn_buf *b)
{
    ltn_buf_reset(b);
    (void)ltn_buf_puts(b, "SELECT ");
    for (const char *at = t->columns; *at != '\0';) {
        size_t n = strcspn(at, ",");
        int rc = has_column(m, t->name, at, n);
        if (rc < 0 || (rc == 0 && at == t->columns)) {
            return rc;
        }
        (void)ltn_buf_puts(b, at == t->columns ? "" : ",");
        rc = rc == 1 ? ltn_buf_append(b, at, n) : put_default(m, t->name, at, n, b);
        if (rc < 0) {
            return rc;
        }
        at += n + (at[n] == ',');
    }
    (void)ltn_buf_printf(b, " FROM %s%s", t->name, t->kinds[0] == 'K' ? " ORDER BY id" : "");
    int rc = ltn_buf_error(b);
    return rc < 0 ? rc : 1;
}

/* One row: copied, or counted as a duplicate. */
static int copy_row(struct merge *m, const struct table *t, const char *insert,
                    struct ltn_stmt *from, int64_t *id)
{
    struct ltn_stmt *to;
    bool is_window = strcmp(t->name, "windows") == 0;
    if (t->kinds[0] == 'W' &&
        ltn_map_get_u64(&m->maps[WINDOWS], (uint64_t)ltn_stmt_col_i64(from, 0)) == SKIP) {
        return 0;
    }
    int rc = is_duplicate(m, t, from);
    if (rc != 0) {
        m->result->duplicates += rc == 1;
        return rc == 1 && is_window
                   ? ltn_map_put_u64(&m->maps[WINDOWS], (uint64_t)ltn_stmt_col_i64(from, 0), SKIP)
               : rc < 0 ? rc
                        : 0;
    }
    rc = ltn_db_prepare(m->out, insert, &to);
    if (rc == 0) {
        rc = insert_row(m, t, to, from, id);
    }
    if (rc == 0 && is_window) {
        rc = remember(m, WINDOWS, ltn_stmt_col_i64(from, 0), *id);
    }
    m->result->windows += rc == 0 && is_window;
    m->result->calls += rc == 0 && strcmp(t->name, "calls") == 0;
    m->result->incident_changes += rc == 0 && strcmp(t->name, "incident_changes") == 0;
    return rc;
}

static int copy_table(struct merge *m, const struct table *t)
{
    struct ltn_buf select;
    struct ltn_buf insert;
    struct ltn_stmt *from;
    int64_t id = 0;
    int rc = make_insert(t, &insert);
    ltn_buf_init(&select, SQL_BYTES);
    (void)ltn_buf_printf(&select, "SELECT coalesce(max(id), 0) FROM %s", t->name);
    if (rc == 0 && t->kinds[0] == 'K') {
        rc = ltn_db_get_i64(m->out, ltn_buf_str(&select), &id);
    }
    bool there = false;
    if (rc == 0) {
        rc = make_select(m, t, &select);
        there = rc == 1;
        rc = there ? ltn_db_prepare(m->in, ltn_buf_str(&select), &from) : rc;
    }
    while (rc == 0 && there && (rc = ltn_stmt_step(from)) == 1) {
        rc = copy_row(m, t, ltn_buf_str(&insert), from, &id);
    }
    ltn_buf_done(&select);
    ltn_buf_done(&insert);
    return rc;
}

/* ---- the whole ---- */

static int copy_input(struct merge *m, const char *path, struct ltn_errinfo *info)
{
    struct ltn_record_reader *r = NULL;
    int rc = ltn_record_reader_open(path, &r, info);
    if (rc < 0) {
        return rc;
    }
    m->in = ltn_record_reader_db(r);
    for (int i = 0; i < MAPS; i++) {
        ltn_map_init(&m->maps[i], MAP_ENTRIES);
    }
    rc = ltn_db_exec(m->in, "BEGIN");
    if (rc == 0) {
        rc = ltn_db_get_i64(m->out, "SELECT coalesce(max(id), 0) FROM incident_changes",
                            &m->incidents_before);
    }
    if (rc == 0) {
        rc = ltn_db_begin(m->out);
    }
    if (rc == 0) {
        rc = learn_names(m);
    }
    if (rc == 0) {
        rc = copy_stacks(m);
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(tables) && rc == 0; i++) {
        rc = tables[i].kinds != NULL ? copy_table(m, &tables[i]) : 0;
    }
    if (rc == 0) {
        rc = ltn_db_commit(m->out);
    }
    if (rc < 0) {
        (void)ltn_errinfo_set(info, rc, "%s: %s (%s; %s)", path, ltn_err_str(rc),
                              ltn_db_message(m->in), ltn_db_message(m->out));
        ltn_db_rollback(m->out);
    }
    for (int i = 0; i < MAPS; i++) {
        ltn_map_done(&m->maps[i], NULL);
    }
    ltn_record_reader_close(r);
    m->in = NULL;
    return rc;
}

static int finish(struct merge *m)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(
        m->out,
        "INSERT INTO meta (key, value) SELECT 'node', CASE WHEN count(*) = 1 THEN min(name) ELSE "
        "'merged' END FROM nodes UNION ALL SELECT 'version', ? UNION ALL SELECT 'next_call_id', "
        "coalesce(max(id), 0) + 1 FROM calls",
        &s);
    if (rc == 0) {
        ltn_stmt_text(s, 1, LTN_VERSION);
        rc = ltn_stmt_run(s);
    }
    if (rc == 0) {
        rc = ltn_merge_skew(m->out, m->result);
    }
    return rc == 0 ? ltn_db_checkpoint(m->out, true) : rc;
}

static void drop_output(const char *path)
{
    char side[PATH_MAX + 8];
    (void)unlink(path);
    for (size_t i = 0; i < LTN_DB_SIDES; i++) {
        (void)snprintf(side, sizeof(side), "%s%s", path, ltn_db_sides[i]);
        (void)unlink(side);
    }
}

int ltn_merge(const struct ltn_merge_opts *o, struct ltn_merge_result *ret,
              struct ltn_errinfo *info)
{
    struct merge m = {.o = o, .result = ret};
    *ret = (struct ltn_merge_result){0};
    int fd = open(o->output, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        int rc = -errno;
        return ltn_errinfo_set(info, rc, "%s: %s", o->output,
                               rc == -EEXIST ? "exists already; merging never overwrites"
                                             : ltn_err_str(rc));
    }
    (void)close(fd);
    int rc = ltn_db_open(&(struct ltn_db_opts){.path = o->output}, &m.out, info);
    if (rc == 0) {
        rc = ltn_db_migrate(m.out, ltn_record_migrations, ltn_record_migration_count, info);
    }
    for (m.input = 0; m.input < o->input_count && rc == 0; m.input++) {
        rc = copy_input(&m, o->inputs[m.input], info);
    }
    if (rc == 0) {
        rc = finish(&m);
        if (rc < 0) {
            (void)ltn_errinfo_set(info, rc, "%s: %s", o->output, ltn_db_message(m.out));
        }
    }
    ltn_db_close(m.out);
    if (rc < 0) {
        drop_output(o->output);
    }
    return rc;
}
