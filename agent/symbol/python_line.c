/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python_line.h"

#include <stdbool.h>

#include "base/err.h"
#include "symbol/python_layout.h"

#define NO_LINE_DELTA (-128) /* 3.10 */
#define UNIT_BYTES    2u     /* 3.11: ranges are counted in instructions */
#define VARINT_MAX    6      /* groups of 6 bits that a 32-bit number takes */

/* Kinds of entries of a 3.11 table. */
enum {
    ENTRY_ONE_LINE_LAST = 9, /* 0-9: the same line, one more byte */
    ENTRY_TWO_BYTES = 10,    /* 10-12: this many lines more, less 10; two more bytes */
    ENTRY_TWO_BYTES_LAST = 12,
    ENTRY_NO_COLUMNS = 13, /* a signed number */
    ENTRY_LONG = 14,       /* a signed number and three more */
    ENTRY_NONE = 15,       /* no line */
};

/* A line as the table moves it about: never out of 32 bits, whatever the table says. */
static bool move(int64_t *line, int64_t delta)
{
    *line += delta;
    return *line >= 0 && *line <= INT32_MAX;
}

/* 3.9: pairs (bytes further, lines further). What the last pair that begins at or before the
 * offset says holds up to the next. */
static int line_of_pairs(const struct ltn_python_table *t, uint32_t offset, uint32_t *ret_line)
{
    int64_t line = t->first_line;
    uint64_t at = 0;
    size_t i = 0;
    for (; i + 2 <= t->size; i += 2) {
        at += t->data[i];
        if (at > offset) {
            break;
        }
        if (!move(&line, (int8_t)t->data[i + 1])) {
            return LTN_ERR_MALFORMED;
        }
    }
    *ret_line = (uint32_t)line;
    return i + 2 > t->size && t->size < t->whole ? LTN_ERR_NOT_FOUND : 0;
}

/* 3.10: pairs (bytes covered, lines further; -128 = no line here). */
static int line_of_ranges(const struct ltn_python_table *t, uint32_t offset, uint32_t *ret_line)
{
    int64_t line = t->first_line;
    uint64_t end = 0;
    for (size_t i = 0; i + 2 <= t->size; i += 2) {
        int delta = (int8_t)t->data[i + 1];
        end += t->data[i];
        if (delta != NO_LINE_DELTA && !move(&line, delta)) {
            return LTN_ERR_MALFORMED;
        }
        if (offset < end) {
            *ret_line = (uint32_t)line;
            return delta == NO_LINE_DELTA ? LTN_ERR_NOT_FOUND : 0;
        }
    }
    *ret_line = (uint32_t)line;
    return LTN_ERR_NOT_FOUND;
}

static bool read_varint(const struct ltn_python_table *t, size_t *pos, uint32_t *ret)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VARINT_MAX; i++) {
        if (*pos >= t->size || (t->data[*pos] & 0x80) != 0) {
            return false;
        }
        uint8_t byte = t->data[(*pos)++];
        value |= (uint64_t)(byte & 0x3f) << (6 * i);
        if ((byte & 0x40) == 0) {
            *ret = (uint32_t)value;
            return value <= UINT32_MAX;
        }
    }
    return false;
}

/* Lines by which the entry at *pos (behind its first byte) moves on. */
static bool read_delta(const struct ltn_python_table *t, unsigned kind, size_t *pos,
                       int64_t *ret_delta)
{
    *ret_delta = 0;
    if (kind >= ENTRY_TWO_BYTES && kind <= ENTRY_TWO_BYTES_LAST) {
        *ret_delta = (int64_t)kind - ENTRY_TWO_BYTES;
    }
    if (kind != ENTRY_NO_COLUMNS && kind != ENTRY_LONG) {
        return true;
    }
    uint32_t value;
    if (!read_varint(t, pos, &value)) {
        return false;
    }
    *ret_delta = (value & 1) != 0 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
    return true;
}

/* 3.11 and later: entries of a first byte (bit 7, kind, instructions less one) and what its kind
 * wants, told apart by bit 7. */
static int line_of_entries(const struct ltn_python_table *t, uint32_t offset, uint32_t *ret_line)
{
    int64_t line = t->first_line;
    uint64_t end = 0;
    size_t pos = 0;
    while (pos < t->size) {
        uint8_t first = t->data[pos++];
        unsigned kind = first >> 3 & 15;
        int64_t delta;
        if ((first & 0x80) == 0) {
            return LTN_ERR_MALFORMED;
        }
        if (!read_delta(t, kind, &pos, &delta)) {
            return pos >= t->size && t->size < t->whole ? LTN_ERR_NOT_FOUND : LTN_ERR_MALFORMED;
        }
        if (!move(&line, delta)) {
            return LTN_ERR_MALFORMED;
        }
        *ret_line = (uint32_t)line;
        end += ((first & 7u) + 1) * UNIT_BYTES;
        if (offset < end) {
            return kind == ENTRY_NONE ? LTN_ERR_NOT_FOUND : 0;
        }
        while (pos < t->size && (t->data[pos] & 0x80) == 0) {
            pos++;
        }
    }
    return LTN_ERR_NOT_FOUND;
}

int ltn_python_line(const struct ltn_python_table *t, int32_t offset, uint32_t *ret_line)
{
    uint32_t version = t->version & 0xffff;
    *ret_line = t->first_line;
    if (t->first_line > INT32_MAX) {
        return LTN_ERR_MALFORMED;
    }
    if (offset < 0) {
        return 0;
    }
    if (version >= LTN_PYTHON_VERSION(3, 10) && (offset & 1) != 0) {
        return LTN_ERR_MALFORMED;
    }
    if (version >= LTN_PYTHON_VERSION(3, 11) && version <= LTN_PYTHON_VERSION(3, 15)) {
        return line_of_entries(t, (uint32_t)offset, ret_line);
    }
    if (version == LTN_PYTHON_VERSION(3, 10)) {
        return line_of_ranges(t, (uint32_t)offset, ret_line);
    }
    return version == LTN_PYTHON_VERSION(3, 9) ? line_of_pairs(t, (uint32_t)offset, ret_line)
                                               : LTN_ERR_UNSUPPORTED;
}
