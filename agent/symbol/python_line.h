/* SPDX-License-Identifier: Apache-2.0 */
/* From the position in a code object to a line, by the three tables that CPython has had. The table
 * is hostile input. Pure, thread-safe. */
#ifndef LTN_SYMBOL_PYTHON_LINE_H
#define LTN_SYMBOL_PYTHON_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

/* One line table, as far as it is known. */
struct ltn_python_table {
    uint32_t version; /* of struct ltn_python_process */
    uint32_t first_line;
    const uint8_t *data; /* borrowed */
    size_t size;         /* bytes known */
    size_t whole;        /* bytes there are */
};

/* Line of the instruction at this offset (bytes; negative = the code has not begun, which is its
 * first line). 0; LTN_ERR_NOT_FOUND when the table says nothing of the place (*ret_line is then the
 * last line known before it); LTN_ERR_MALFORMED when it is no such table; LTN_ERR_UNSUPPORTED for
 * an unknown version. */
int ltn_python_line(const struct ltn_python_table *t, int32_t offset,
                    uint32_t *ret_line) ltn_must_check;

#endif /* LTN_SYMBOL_PYTHON_LINE_H */
