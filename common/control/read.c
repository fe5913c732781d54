/* SPDX-License-Identifier: Apache-2.0 */
#include "control/message.h"

#include "base/err.h"
#include "otlp/pb_read.h"

/* Message, page, row, cell. */
#define MAX_DEPTH 4

/* What a field of a message means; a table per message, ended by number 0. */
enum shape { U64, U32, I32, S64, F64, FIXED64, STR, FLAG };

struct field {
    uint32_t number;
    enum shape shape;
    size_t offset;
};

static enum ltn_pb_type wire_type(enum shape shape)
{
    return shape == STR ? LTN_PB_LEN
                        : (shape == F64 || shape == FIXED64 ? LTN_PB_I64 : LTN_PB_VARINT);
}

static void store(char *at, enum shape shape, const struct ltn_pb_field *f)
{
    uint64_t v = f->value;
    switch (shape) {
    case U64:
    case FIXED64:
        memcpy(at, &v, sizeof(v));
        break;
    case U32: {
        uint32_t x = (uint32_t)v;
        memcpy(at, &x, sizeof(x));
        break;
    }
    case I32: {
        int32_t x = (int32_t)(uint32_t)v;
        memcpy(at, &x, sizeof(x));
        break;
    }
    case S64: {
        int64_t x = (int64_t)((v >> 1) ^ (0 - (v & 1)));
        memcpy(at, &x, sizeof(x));
        break;
    }
    case F64: {
        double x = ltn_pb_f64(v);
        memcpy(at, &x, sizeof(x));
        break;
    }
    case FLAG: {
        bool x = v != 0;
        memcpy(at, &x, sizeof(x));
        break;
    }
    case STR: {
        struct ltn_control_str x = {(const char *)f->data, (size_t)v};
        memcpy(at, &x, sizeof(x));
        break;
    }
    }
}

/* Reads the plain fields of the message at c into *out; others are skipped. */
static int read_fields(struct ltn_pb_cur *c, const struct field *fields, void *out)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        const struct field *d = fields;
        while (d->number != 0 && d->number != f.number) {
            d++;
        }
        if (d->number == 0) {
            continue;
        }
        if (f.type != (uint32_t)wire_type(d->shape)) {
            return LTN_ERR_MALFORMED;
        }
        store((char *)out + d->offset, d->shape, &f);
    }
    return rc;
}

#define AT(type, member) offsetof(struct ltn_control_##type, member)

static const struct field hello_fields[] = {
    {1, STR, AT(hello, node)},
    {2, STR, AT(hello, cluster)},
    {3, STR, AT(hello, version)},
    {4, STR, AT(hello, boot_id)},
    {7, STR, AT(hello, instance)},
    {5, FIXED64, AT(hello, agent_start_unix_ns)},
    {0, U64, 0},
};
static const struct field ping_fields[] = {
    {1, U64, AT(ping, sequence)},
    {2, FIXED64, AT(ping, t1_unix_ns)},
    {3, S64, AT(ping, last_offset_ns)},
    {4, U64, AT(ping, last_round_trip_ns)},
    {0, U64, 0},
};
static const struct field end_fields[] = {
    {1, U64, AT(end, id)},
    {2, I32, AT(end, code)},
    {3, STR, AT(end, message)},
    {4, FLAG, AT(end, truncated)},
    {5, U64, AT(end, rows)},
    {6, U64, AT(end, elapsed_ns)},
    {0, U64, 0},
};
static const struct field welcome_fields[] = {
    {1, STR, AT(welcome, collector)},
    {2, STR, AT(welcome, version)},
    {3, U64, AT(welcome, clock_interval_ns)},
    {0, U64, 0},
};
static const struct field pong_fields[] = {
    {1, U64, AT(pong, sequence)},
    {2, FIXED64, AT(pong, t1_unix_ns)},
    {3, FIXED64, AT(pong, t2_unix_ns)},
    {4, FIXED64, AT(pong, t3_unix_ns)},
    {0, U64, 0},
};
static const struct field verdict_fields[] = {
    {1, STR, AT(verdict, id)},
    {2, STR, AT(verdict, job)},
    {3, U32, AT(verdict, rank)},
    {4, U32, AT(verdict, state)},
    {5, FIXED64, AT(verdict, since_unix_ns)},
    {6, F64, AT(verdict, effect)},
    {7, STR, AT(verdict, cause)},
    {8, F64, AT(verdict, explained_share)},
    {0, U64, 0},
};
static const struct field query_fields[] = {
    {1, U64, AT(query, id)},        {2, STR, AT(query, sql)},        {3, U32, AT(query, max_rows)},
    {4, U64, AT(query, max_bytes)}, {5, U64, AT(query, timeout_ns)}, {0, U64, 0},
};
static const struct field id_field[] = {{1, U64, 0}, {0, U64, 0}};
static const struct field id_text_field[] = {{1, STR, 0}, {0, U64, 0}};

/* ---- pages ---- */

static const enum ltn_pb_type cell_types[] = {LTN_PB_VARINT, LTN_PB_VARINT, LTN_PB_I64, LTN_PB_LEN,
                                              LTN_PB_LEN};

static int check_cell(struct ltn_pb_cur *c)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        if (f.number >= 1 && f.number <= 4 && f.type != (uint32_t)cell_types[f.number]) {
            return LTN_ERR_MALFORMED;
        }
    }
    return rc;
}

static int check_row(struct ltn_pb_cur *c, size_t *ret_cells)
{
    struct ltn_pb_field f;
    struct ltn_pb_cur sub;
    size_t n = 0;
    int rc;
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        if (f.number != 1) {
            continue;
        }
        if (++n > LTN_CONTROL_MAX_COLUMNS) {
            return LTN_ERR_COUNT;
        }
        rc = ltn_pb_enter(c, &f, &sub);
        if (rc == 0) {
            rc = check_cell(&sub);
        }
        if (rc < 0) {
            return rc;
        }
    }
    *ret_cells = n;
    return rc;
}

static int take_row(const struct ltn_pb_cur *c, const struct ltn_pb_field *f,
                    struct ltn_control_page *page)
{
    struct ltn_pb_cur sub;
    size_t cells = 0;
    if (page->rows == LTN_CONTROL_PAGE_ROWS) {
        return LTN_ERR_COUNT;
    }
    int rc = ltn_pb_enter(c, f, &sub);
    if (rc == 0) {
        rc = check_row(&sub, &cells);
    }
    if (rc < 0) {
        return rc;
    }
    page->min_cells = page->rows == 0 || cells < page->min_cells ? cells : page->min_cells;
    page->max_cells = cells > page->max_cells ? cells : page->max_cells;
    page->rows++;
    return 0;
}

static int read_page(struct ltn_pb_cur *c, struct ltn_control_page *page)
{
    struct ltn_pb_field f;
    int rc;
    page->bytes = c->p;
    page->n = (size_t)(c->end - c->p);
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        bool number = f.number == 1 || f.number == 2;
        bool text = f.number == 3 || f.number == 4;
        if ((number && f.type != LTN_PB_VARINT) || (text && f.type != LTN_PB_LEN)) {
            return LTN_ERR_MALFORMED;
        }
        if (f.number == 1) {
            page->id = f.value;
        } else if (f.number == 2) {
            page->page = (uint32_t)f.value;
        } else if (f.number == 3 && ++page->columns > LTN_CONTROL_MAX_COLUMNS) {
            return LTN_ERR_COUNT;
        } else if (f.number == 4) {
            rc = take_row(c, &f, page);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return rc;
}

/* The next field of that number from *pos on. */
static bool next_bytes(const uint8_t *p, size_t n, size_t *pos, uint32_t number,
                       struct ltn_control_str *ret)
{
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    ltn_pb_init(&c, p, n, 1);
    c.p += *pos;
    while (ltn_pb_next(&c, &f) > 0) {
        if (f.number == number && f.type == LTN_PB_LEN) {
            *ret = (struct ltn_control_str){(const char *)f.data, (size_t)f.value};
            *pos = (size_t)(c.p - (c.end - n));
            return true;
        }
    }
    *pos = n;
    return false;
}

bool ltn_control_next_column(const struct ltn_control_page *page, size_t *pos,
                             struct ltn_control_str *ret)
{
    return next_bytes(page->bytes, page->n, pos, 3, ret);
}

bool ltn_control_next_row(const struct ltn_control_page *page, size_t *pos,
                          struct ltn_control_str *ret)
{
    return next_bytes(page->bytes, page->n, pos, 4, ret);
}

bool ltn_control_next_cell(struct ltn_control_str row, size_t *pos, struct ltn_control_cell *ret)
{
    struct ltn_control_str bytes;
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    if (!next_bytes((const uint8_t *)row.p, row.n, pos, 1, &bytes)) {
        return false;
    }
    *ret = (struct ltn_control_cell){.type = LTN_CONTROL_NULL};
    ltn_pb_init(&c, bytes.p, bytes.n, 1);
    while (ltn_pb_next(&c, &f) > 0) {
        switch (f.number) {
        case 1:
            *ret = (struct ltn_control_cell){.type = LTN_CONTROL_INTEGER};
            store((char *)&ret->integer, S64, &f);
            break;
        case 2:
            *ret = (struct ltn_control_cell){.type = LTN_CONTROL_REAL, .real = ltn_pb_f64(f.value)};
            break;
        case 3:
        case 4:
            *ret = (struct ltn_control_cell){.type = f.number == 3 ? LTN_CONTROL_TEXT
                                                                   : LTN_CONTROL_BLOB,
                                             .bytes = {(const char *)f.data, (size_t)f.value}};
            break;
        default:
            break;
        }
    }
    return true;
}

/* ---- messages ---- */

/* The body: the one field of the outer message that is known. *ret_number is 0 without one. */
static int find_body(const void *p, size_t n, uint32_t last, struct ltn_pb_cur *ret_body,
                     uint32_t *ret_number)
{
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    int rc;
    *ret_number = 0;
    if (n > LTN_CONTROL_MESSAGE_BYTES) {
        return LTN_ERR_TOO_LARGE;
    }
    ltn_pb_init(&c, p, n, MAX_DEPTH);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.number > last) {
            continue;
        }
        if (*ret_number != 0) {
            return LTN_ERR_MALFORMED;
        }
        rc = ltn_pb_enter(&c, &f, ret_body);
        if (rc < 0) {
            return rc;
        }
        *ret_number = f.number;
    }
    return rc;
}

int ltn_control_read_agent(const void *p, size_t n, struct ltn_control_message *ret)
{
    struct ltn_pb_cur c;
    uint32_t number;
    *ret = (struct ltn_control_message){.kind = LTN_CONTROL_NOTHING};
    int rc = find_body(p, n, 5, &c, &number);
    if (rc < 0) {
        return rc;
    }
    switch (number) {
    case 1:
        ret->kind = LTN_CONTROL_HELLO;
        return read_fields(&c, hello_fields, &ret->hello);
    case 2:
        ret->kind = LTN_CONTROL_CLOCK_PING;
        return read_fields(&c, ping_fields, &ret->ping);
    case 3:
        ret->kind = LTN_CONTROL_QUERY_PAGE;
        return read_page(&c, &ret->page);
    case 4:
        ret->kind = LTN_CONTROL_QUERY_END;
        return read_fields(&c, end_fields, &ret->end);
    case 5:
        ret->kind = LTN_CONTROL_VERDICT_ACK;
        return read_fields(&c, id_text_field, &ret->ack_id);
    default:
        return 0;
    }
}

int ltn_control_read_collector(const void *p, size_t n, struct ltn_control_message *ret)
{
    struct ltn_pb_cur c;
    uint32_t number;
    *ret = (struct ltn_control_message){.kind = LTN_CONTROL_NOTHING};
    int rc = find_body(p, n, 7, &c, &number);
    if (rc < 0) {
        return rc;
    }
    switch (number) {
    case 1:
        ret->kind = LTN_CONTROL_WELCOME;
        return read_fields(&c, welcome_fields, &ret->welcome);
    case 2:
        ret->kind = LTN_CONTROL_CLOCK_PONG;
        return read_fields(&c, pong_fields, &ret->pong);
    case 3:
        ret->kind = LTN_CONTROL_THRESHOLDS;
        return read_fields(&c, id_field, &ret->thresholds_generation);
    case 4:
        ret->kind = LTN_CONTROL_VERDICT;
        return read_fields(&c, verdict_fields, &ret->verdict);
    case 5:
        ret->kind = LTN_CONTROL_QUERY;
        return read_fields(&c, query_fields, &ret->query);
    case 6:
        ret->kind = LTN_CONTROL_QUERY_CANCEL;
        return read_fields(&c, id_field, &ret->cancel_id);
    case 7:
        ret->kind = LTN_CONTROL_DRAIN;
        return read_fields(&c, id_field, &ret->drain_within_ns);
    default:
        return 0;
    }
}
