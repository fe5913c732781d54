/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python_text.h"

#define LAST_CODE_POINT 0x10ffffu

static uint32_t point_at(const uint8_t *at, unsigned width)
{
    uint32_t p = 0;
    for (unsigned i = 0; i < width; i++) {
        p |= (uint32_t)at[i] << (8 * i);
    }
    return p;
}

static int is_printable(uint32_t p)
{
    /* C0, DEL, C1; surrogates; marks that turn the direction of a line or break it. */
    return p >= 0x20 && (p < 0x7f || p > 0x9f) && (p < 0xd800 || p > 0xdfff) &&
           p <= LAST_CODE_POINT && (p < 0x202a || p > 0x202e) && (p < 0x2066 || p > 0x2069) &&
           p != 0x2028 && p != 0x2029;
}

static size_t encode(uint32_t p, uint8_t out[4])
{
    if (p < 0x80) {
        out[0] = (uint8_t)p;
        return 1;
    }
    if (p < 0x800) {
        out[0] = (uint8_t)(0xc0 | p >> 6);
        out[1] = (uint8_t)(0x80 | (p & 0x3f));
        return 2;
    }
    if (p < 0x10000) {
        out[0] = (uint8_t)(0xe0 | p >> 12);
        out[1] = (uint8_t)(0x80 | (p >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (p & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | p >> 18);
    out[1] = (uint8_t)(0x80 | (p >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (p >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (p & 0x3f));
    return 4;
}

size_t ltn_python_text(char *out, size_t size, const void *data, size_t n, unsigned width)
{
    const uint8_t *at = data;
    size_t len = 0;
    if (size == 0) {
        return 0;
    }
    for (size_t i = 0; width != 0 && i + width <= n; i += width) {
        uint32_t p = point_at(at + i, width);
        uint8_t bytes[4];
        size_t count = encode(is_printable(p) ? p : '?', bytes);
        if (len + count >= size) {
            break;
        }
        for (size_t k = 0; k < count; k++) {
            out[len++] = (char)bytes[k];
        }
    }
    out[len] = '\0';
    return len;
}
