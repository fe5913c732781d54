/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of lanterne.v1.Control, read and written by hand. A message that was read is a view:
 * its texts and rows are borrowed from the bytes it was read from. Reading never allocates and
 * checks everything at once, so walking a page that was read cannot fail. Any thread.
 */
#ifndef LTN_CONTROL_MESSAGE_H
#define LTN_CONTROL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"

#define LTN_CONTROL_METHOD        "/lanterne.v1.Control/Attach"
#define LTN_CONTROL_MESSAGE_BYTES ((size_t)1 << 20)   /* the largest that is taken */
#define LTN_CONTROL_PAGE_BYTES    ((size_t)128 << 10) /* a page is closed beyond this */
#define LTN_CONTROL_PAGE_ROWS     1000
#define LTN_CONTROL_MAX_COLUMNS   200 /* of a page, and cells of a row */
#define LTN_CONTROL_MAX_RANKS     4096

struct ltn_control_str {
    const char *p; /* not terminated */
    size_t n;
};

enum ltn_control_kind {
    LTN_CONTROL_NOTHING, /* no body this side knows: from a newer peer */
    /* from the agent */
    LTN_CONTROL_HELLO,
    LTN_CONTROL_CLOCK_PING,
    LTN_CONTROL_QUERY_PAGE,
    LTN_CONTROL_QUERY_END,
    LTN_CONTROL_VERDICT_ACK,
    /* from the collector */
    LTN_CONTROL_WELCOME,
    LTN_CONTROL_CLOCK_PONG,
    LTN_CONTROL_THRESHOLDS,
    LTN_CONTROL_VERDICT,
    LTN_CONTROL_QUERY,
    LTN_CONTROL_QUERY_CANCEL,
    LTN_CONTROL_DRAIN,
};

struct ltn_control_hello {
    struct ltn_control_str node, cluster, version, boot_id, instance;
    uint64_t agent_start_unix_ns;
};

struct ltn_control_welcome {
    struct ltn_control_str collector, version;
    uint64_t clock_interval_ns; /* 0: up to the agent */
};

struct ltn_control_ping {
    uint64_t sequence;
    uint64_t t1_unix_ns;
    int64_t last_offset_ns;
    uint64_t last_round_trip_ns; /* 0: no result yet */
};

struct ltn_control_pong {
    uint64_t sequence;
    uint64_t t1_unix_ns, t2_unix_ns, t3_unix_ns;
};

enum ltn_control_state {
    LTN_CONTROL_STATE_UNSPECIFIED,
    LTN_CONTROL_STATE_CLEAR,
    LTN_CONTROL_STATE_OPEN,
    LTN_CONTROL_STATE_CANNOT_TELL,
};

struct ltn_control_verdict {
    struct ltn_control_str id, job, cause;
    uint32_t rank;
    uint32_t state; /* enum ltn_control_state, or one of a newer peer */
    uint64_t since_unix_ns;
    double effect;
    double explained_share;
};

struct ltn_control_query {
    uint64_t id;
    struct ltn_control_str sql;
    uint32_t max_rows;
    uint64_t max_bytes;
    uint64_t timeout_ns;
};

struct ltn_control_end {
    uint64_t id;
    int32_t code; /* gRPC status */
    struct ltn_control_str message;
    bool truncated;
    uint64_t rows;
    uint64_t elapsed_ns;
};

struct ltn_control_page {
    uint64_t id;
    uint32_t page;
    size_t columns, rows;
    size_t min_cells, max_cells; /* of a row; 0 without rows */
    const uint8_t *bytes;        /* of the QueryPage, for the walks */
    size_t n;
};

struct ltn_control_message {
    enum ltn_control_kind kind;
    union {
        struct ltn_control_hello hello;
        struct ltn_control_welcome welcome;
        struct ltn_control_ping ping;
        struct ltn_control_pong pong;
        struct ltn_control_verdict verdict;
        struct ltn_control_query query;
        struct ltn_control_end end;
        struct ltn_control_page page;
        struct ltn_control_str ack_id;
        uint64_t cancel_id;
        uint64_t drain_within_ns;
        uint64_t thresholds_generation;
    };
};

/* ---- reading ---- */

/* Reads a message of an agent or of a collector. Fields of newer peers are skipped. 0;
 * LTN_ERR_MALFORMED: broken bytes, a field of another type, more than one body; LTN_ERR_COUNT: too
 * many columns, cells, rows; LTN_ERR_TOO_LARGE: beyond LTN_CONTROL_MESSAGE_BYTES. */
int ltn_control_read_agent(const void *p, size_t n, struct ltn_control_message *ret) ltn_must_check;
int ltn_control_read_collector(const void *p, size_t n,
                               struct ltn_control_message *ret) ltn_must_check;

enum ltn_control_cell_type {
    LTN_CONTROL_NULL,
    LTN_CONTROL_INTEGER,
    LTN_CONTROL_REAL,
    LTN_CONTROL_TEXT,
    LTN_CONTROL_BLOB,
};

struct ltn_control_cell {
    enum ltn_control_cell_type type;
    int64_t integer;
    double real;
    struct ltn_control_str bytes; /* text or blob */
};

/* Walks the columns, the rows (their bytes) of a page, and the cells of a row: start with *pos 0.
 * False at the end. Only for what ltn_control_read_agent accepted. */
bool ltn_control_next_column(const struct ltn_control_page *page, size_t *pos,
                             struct ltn_control_str *ret);
bool ltn_control_next_row(const struct ltn_control_page *page, size_t *pos,
                          struct ltn_control_str *ret);
bool ltn_control_next_cell(struct ltn_control_str row, size_t *pos, struct ltn_control_cell *ret);

/* ---- writing: appends one message; failures stick in the buffer ---- */

struct ltn_control_str ltn_control_str(const char *s); /* NULL: "" */

void ltn_control_put_hello(struct ltn_buf *b, const struct ltn_control_hello *m);
void ltn_control_put_ping(struct ltn_buf *b, const struct ltn_control_ping *m);
void ltn_control_put_end(struct ltn_buf *b, const struct ltn_control_end *m);
void ltn_control_put_ack(struct ltn_buf *b, struct ltn_control_str id);
void ltn_control_put_welcome(struct ltn_buf *b, const struct ltn_control_welcome *m);
void ltn_control_put_pong(struct ltn_buf *b, const struct ltn_control_pong *m);
void ltn_control_put_verdict(struct ltn_buf *b, const struct ltn_control_verdict *m);
void ltn_control_put_query(struct ltn_buf *b, const struct ltn_control_query *m);
void ltn_control_put_cancel(struct ltn_buf *b, uint64_t id);
void ltn_control_put_drain(struct ltn_buf *b, uint64_t within_ns);

/* A page piece by piece: open, columns, rows of cells, close. */
struct ltn_control_page_writer {
    struct ltn_buf *b;
    size_t page, row; /* marks */
};
void ltn_control_open_page(struct ltn_control_page_writer *w, struct ltn_buf *b, uint64_t id,
                           uint32_t page);
void ltn_control_put_column(struct ltn_control_page_writer *w, const char *name);
void ltn_control_open_row(struct ltn_control_page_writer *w);
/* The next cell of the open row; a row by itself is its cells one after another. Text that is not
 * UTF-8 becomes a blob. */
void ltn_control_put_cell(struct ltn_buf *b, const struct ltn_control_cell *c);
void ltn_control_close_row(struct ltn_control_page_writer *w);
void ltn_control_close_page(struct ltn_control_page_writer *w);

#endif /* LTN_CONTROL_MESSAGE_H */
