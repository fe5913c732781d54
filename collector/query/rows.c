/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/text.h"
#include "query/internal.h"

void ltn_rowset_init(struct rowset *r, size_t max_bytes)
{
    ltn_buf_init(&r->b, max_bytes);
    r->count = 0;
}

void ltn_rowset_done(struct rowset *r)
{
    ltn_buf_done(&r->b);
    r->count = 0;
}

int ltn_rowset_put(struct rowset *r, struct ltn_control_str row)
{
    uint32_t n = (uint32_t)row.n;
    if (ltn_buf_reserve(&r->b, sizeof(n) + row.n) == NULL)
        return ltn_buf_error(&r->b);
    int rc = ltn_buf_append(&r->b, &n, sizeof(n));
    if (rc == 0 && row.n > 0)
        rc = ltn_buf_append(&r->b, row.p, row.n);
    r->count += rc == 0 ? 1 : 0;
    return rc;
}

bool ltn_rowset_next(const struct rowset *r, size_t *pos, struct ltn_control_str *ret)
{
    uint32_t n;
    if (*pos >= r->b.len)
        return false;
    memcpy(&n, r->b.data + *pos, sizeof(n));
    *ret = (struct ltn_control_str){r->b.data + *pos + sizeof(n), n};
    *pos += sizeof(n) + n;
    return true;
}

void ltn_columns_done(struct columns *c)
{
    free(c->text);
    *c = (struct columns){0};
}

int ltn_columns_put(struct columns *c, const char *name, size_t n)
{
    char clean[LTN_QUERY_COLUMN_BYTES];
    ltn_text_clean(clean, sizeof(clean), name, n);
    size_t more = strlen(clean) + 1;
    char *text = realloc(c->text, c->bytes + more);
    if (text == NULL)
        return -ENOMEM;
    memcpy(text + c->bytes, clean, more);
    c->text = text;
    c->bytes += more;
    c->n++;
    return 0;
}

const char *ltn_columns_at(const struct columns *c, size_t i)
{
    const char *p = c->text;
    if (i >= c->n)
        return "";
    for (; i > 0; i--)
        p += strlen(p) + 1;
    return p;
}

/* ---- which columns the answer has ---- */

static bool same_columns(const struct columns *a, const struct columns *b)
{
    if (a->n != b->n)
        return false;
    const char *x = a->text, *y = b->text;
    for (size_t i = 0; i < a->n; i++) {
        if (strcasecmp(x, y) != 0)
            return false;
        x += strlen(x) + 1;
        y += strlen(y) + 1;
    }
    return true;
}

/* The columns that most nodes gave; of equals the first by node name. NULL without an answer or
 * memory. */
static const struct columns *most_common(const struct ltn_query_answer *q, int *ret_rc)
{
    const struct columns *best = NULL;
    uintptr_t most = 0;
    struct ltn_map votes;
    ltn_map_init(&votes, q->n);
    *ret_rc = 0;
    for (size_t i = 0; i < q->n && *ret_rc == 0; i++) {
        const struct part *p = &q->parts[i];
        if (p->state != LTN_QUERY_ANSWERED || p->columns.n == 0)
            continue;
        uintptr_t n = (uintptr_t)ltn_map_get(&votes, p->columns.text, p->columns.bytes) + 1;
        *ret_rc = ltn_map_put(&votes, p->columns.text, p->columns.bytes, (void *)n);
        if (n > most) {
            most = n;
            best = &p->columns;
        }
    }
    ltn_map_done(&votes, NULL);
    return best;
}

int ltn_query_settle(struct ltn_query_answer *q)
{
    int rc;
    const struct columns *best = most_common(q, &rc);
    if (best == NULL || rc != 0)
        return rc;
    q->adds_node = true;
    for (size_t i = 0; i < best->n && rc == 0; i++) {
        const char *name = ltn_columns_at(best, i);
        q->adds_node = q->adds_node && strcasecmp(name, "node") != 0;
        rc = ltn_columns_put(&q->columns, name, strlen(name));
    }
    for (size_t i = 0; i < q->n; i++) {
        struct part *p = &q->parts[i];
        if (p->state == LTN_QUERY_ANSWERED && !same_columns(&p->columns, &q->columns)) {
            p->state = LTN_QUERY_MISMATCH;
            (void)ltn_copy_str(p->note, sizeof(p->note),
                               "left out: its columns are not those of the other nodes");
        }
    }
    return rc;
}

/* ---- the answer ---- */

int ltn_query_answer_rc(const struct ltn_query_answer *a, const char **ret_message)
{
    *ret_message = a->message;
    return a->rc;
}

size_t ltn_query_answer_columns(const struct ltn_query_answer *a)
{
    return a->columns.n + (a->adds_node ? 1 : 0);
}

const char *ltn_query_answer_column(const struct ltn_query_answer *a, size_t i)
{
    if (a->adds_node && i == 0)
        return "node";
    return ltn_columns_at(&a->columns, a->adds_node ? i - 1 : i);
}

bool ltn_query_answer_truncated(const struct ltn_query_answer *a)
{
    return a->truncated;
}

uint64_t ltn_query_answer_elapsed_ns(const struct ltn_query_answer *a)
{
    return a->elapsed_ns;
}

/* The next row of the parts; *ret_node names its node. */
static bool next_of_parts(const struct ltn_query_answer *a, struct ltn_query_cursor *c,
                          struct ltn_control_str *ret, const char **ret_node)
{
    while (c->part < a->n) {
        const struct part *p = &a->parts[c->part];
        if (p->state == LTN_QUERY_ANSWERED && ltn_rowset_next(&p->rows, &c->pos, ret)) {
            *ret_node = p->node;
            return true;
        }
        c->part++;
        c->pos = 0;
    }
    return false;
}

bool ltn_query_next_row(const struct ltn_query_answer *a, struct ltn_query_cursor *c,
                        struct ltn_control_cell *cells)
{
    struct ltn_control_str row;
    const char *node = "";
    size_t n = 0, pos = 0;
    /* What is joined for a second statement is not limited by what that may give. */
    if ((c->count >= a->limit && !a->reducing) || a->rc != 0)
        return false;
    if (a->reduced ? !ltn_rowset_next(&a->result, &c->pos, &row)
                   : !next_of_parts(a, c, &row, &node))
        return false;
    if (a->adds_node)
        cells[n++] =
            (struct ltn_control_cell){.type = LTN_CONTROL_TEXT, .bytes = ltn_control_str(node)};
    size_t want = ltn_query_answer_columns(a);
    while (n < want && ltn_control_next_cell(row, &pos, &cells[n]))
        n++;
    for (; n < want; n++)
        cells[n] = (struct ltn_control_cell){.type = LTN_CONTROL_NULL};
    c->count++;
    return true;
}

const char *ltn_query_node_state_name(enum ltn_query_node_state s)
{
    static const char *const names[] = {
        [LTN_QUERY_WAITS] = "waits",
        [LTN_QUERY_ANSWERED] = "ok",
        [LTN_QUERY_FAILED] = "error",
        [LTN_QUERY_TIMED_OUT] = "timeout",
        [LTN_QUERY_UNREACHABLE] = "unreachable",
        [LTN_QUERY_MISMATCH] = "mismatch",
    };
    return names[s];
}

bool ltn_query_node_answer(const struct ltn_query_answer *a, size_t i,
                           struct ltn_query_node_answer *ret)
{
    if (i >= a->n)
        return false;
    const struct part *p = &a->parts[i];
    *ret = (struct ltn_query_node_answer){.node = p->node,
                                          .state = p->state,
                                          .message = p->note,
                                          .truncated = p->truncated,
                                          .rows = p->rows.count,
                                          .elapsed_ns = p->elapsed_ns};
    return true;
}
