/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of stacks: each content and each frame once. */
#include "base/clock.h"
#include "base/err.h"
#include "record/writer.h"

static int frame_id(struct ltn_writer *w, const struct ltn_stack_frame *f, int64_t *ret)
{
    int64_t function = 0;
    int64_t file = 0;
    struct ltn_stmt *s;
    int rc = ltn_writer_string_id(w, f->function, &function);
    if (rc == 0) {
        rc = ltn_writer_string_id(w, f->file, &file);
    }
    if (rc == 0) {
        rc = ltn_db_prepare(w->db,
                            "INSERT INTO frames (kind, function_id, file_id, build_id, offset, "
                            "line) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET kind = "
                            "excluded.kind RETURNING id",
                            &s);
    }
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, f->kind);
    ltn_stmt_i64(s, 2, function);
    ltn_stmt_i64(s, 3, file);
    ltn_stmt_text(s, 4, f->build_id);
    ltn_stmt_u64(s, 5, f->offset);
    ltn_stmt_i64(s, 6, f->line);
    return ltn_writer_take_id(s, ret);
}

static int store_frames(struct ltn_writer *w, const struct ltn_stack *stack, int64_t id)
{
    int rc = 0;
    for (size_t i = 0; i < stack->count && rc == 0; i++) {
        int64_t frame = 0;
        struct ltn_stmt *s;
        rc = frame_id(w, &stack->frames[i], &frame);
        if (rc == 0) {
            rc = ltn_db_prepare(w->db,
                                "INSERT INTO stack_content_frames (stack_id, position, frame_id) "
                                "VALUES (?, ?, ?)",
                                &s);
        }
        if (rc == 0) {
            ltn_stmt_i64(s, 1, id);
            ltn_stmt_i64(s, 2, (int64_t)i);
            ltn_stmt_i64(s, 3, frame);
            rc = ltn_stmt_run(s);
        }
    }
    return rc;
}

static int content_id(struct ltn_writer *w, const struct ltn_stack *stack, int64_t *ret)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db, "SELECT id FROM stack_contents WHERE hash = ?", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 1, stack->content);
    rc = ltn_writer_take_id(s, ret);
    if (rc != LTN_ERR_NOT_FOUND) {
        return rc;
    }
    rc = ltn_db_prepare(
        w->db, "INSERT INTO stack_contents (hash, truncated) VALUES (?, ?) RETURNING id", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 1, stack->content);
    ltn_stmt_i64(s, 2, stack->truncated);
    rc = ltn_writer_take_id(s, ret);
    return rc < 0 ? rc : store_frames(w, stack, *ret);
}

int ltn_writer_stack(struct ltn_writer *w, const struct ltn_stack *stack)
{
    int64_t proc = 0;
    int64_t content = 0;
    struct ltn_stmt *s;
    int rc = ltn_writer_proc_id(w, stack->pid, stack->proc_start_ns, ltn_now_unix_ns(), &proc);
    if (rc == 0) {
        rc = content_id(w, stack, &content);
    }
    if (rc == 0) {
        rc = ltn_db_prepare(
            w->db, "INSERT OR REPLACE INTO stack_refs (ref, proc_id, stack_id) VALUES (?, ?, ?)",
            &s);
    }
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 1, stack->stack_id);
    ltn_stmt_i64(s, 2, proc);
    ltn_stmt_i64(s, 3, content);
    return ltn_stmt_run(s);
}
