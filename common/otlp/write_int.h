/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the writers of this folder only: levels that close, appends that are taken back. */
#ifndef LTN_OTLP_WRITE_INT_H
#define LTN_OTLP_WRITE_INT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "otlp/metrics_write.h"
#include "otlp/model.h"

/* Shortens the buffer to len and forgets an error that arose since. */
void ltn_otlp_take_back(struct ltn_buf *b, size_t len);

/* Ends an append that began at len start with a healthy buffer: 0, or the error after taking the
 * append back. Also refuses to use up the room that closing the open levels will need. */
int ltn_otlp_settle(struct ltn_buf *b, size_t start);

/* Opens levels[i] as a message in field number. */
void ltn_otlp_level_open(struct ltn_buf *b, struct ltn_otlp_level *level, uint32_t number);

/* Closes levels n-1 down to first; empty ones are taken back, others count in their parent. */
void ltn_otlp_levels_close(struct ltn_buf *b, struct ltn_otlp_level *levels, size_t first,
                           size_t n);

/* Text as proto3 wants it: invalid UTF-8 bytes become '?', since receivers refuse a whole request
 * for one of them. _opt leaves an empty text out. */
void ltn_otlp_put_text(struct ltn_buf *b, uint32_t number, struct ltn_otlp_str s);
void ltn_otlp_put_text_opt(struct ltn_buf *b, uint32_t number, struct ltn_otlp_str s);

/* An AnyValue, and a repeated KeyValue, in field number. */
void ltn_otlp_put_value(struct ltn_buf *b, uint32_t number, const struct ltn_otlp_value *v);
void ltn_otlp_put_attrs(struct ltn_buf *b, uint32_t number, struct ltn_otlp_attrs attrs);

/* The content of InstrumentationScope and of Resource, as a nested message in field 1. */
void ltn_otlp_put_resource(struct ltn_buf *b, struct ltn_otlp_attrs attrs);
void ltn_otlp_put_scope(struct ltn_buf *b, const char *name, const char *version);

#endif /* LTN_OTLP_WRITE_INT_H */
