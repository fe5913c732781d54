/* SPDX-License-Identifier: Apache-2.0 */
/* What the load generator's requests hold. Times and values are marks that are written over later.
 */
#ifndef LTN_BENCH_LOAD_SHAPE_H
#define LTN_BENCH_LOAD_SHAPE_H

#include <stdint.h>

#include "base/buf.h"

/* Marks of a time, of a whole number and of a double, in eight bytes and as JSON text. */
#define LOAD_MARK_TIME        0x1122334455667788u
#define LOAD_MARK_START       0x1100220033004401u
#define LOAD_MARK_INT         0x0a6b5c4d3e2f1a0bu
#define LOAD_MARK_DOUBLE      3.14159265358979312e+77
#define LOAD_MARK_TIME_TEXT   "1122334455667788990"
#define LOAD_MARK_INT_TEXT    "7654321098"
#define LOAD_MARK_DOUBLE_TEXT "8765432109"

/* Appends request `index` of those that carry `series` series, `points` in each: points number
 * index * points and up. Each belongs to one resource for 240, has 3 attributes, and is a
 * cumulative sum or a gauge. Returns the points it holds. */
uint32_t load_shape_series(struct ltn_buf *b, uint32_t index, uint32_t points, uint32_t series);
uint32_t load_shape_json(struct ltn_buf *b, uint32_t index, uint32_t points, uint32_t series);

/* Appends a window of an agent on node `index`, 8 ranks of one job with 21 functions each. */
uint32_t load_shape_agent(struct ltn_buf *b, uint32_t index);
/* How many points that holds. */
uint32_t load_shape_agent_series(void);

#endif /* LTN_BENCH_LOAD_SHAPE_H */
