/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a line table of any version, as a string, as a record about a code object, and as
 * what an interpreter publishes of itself. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "symbol/python_codes.h"
#include "symbol/python_layout.h"
#include "symbol/python_line.h"
#include "symbol/python_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lines(const uint8_t *data, size_t size)
{
    for (uint32_t minor = 8; minor <= 16; minor++) {
        for (int32_t offset = -2; offset < 600; offset += 37) {
            struct ltn_python_table t = {.version = LTN_PYTHON_VERSION(3, minor),
                                         .first_line = 7,
                                         .data = data,
                                         .size = size,
                                         .whole = size + (size & 1)};
            uint32_t line = UINT32_MAX;
            int rc = ltn_python_line(&t, offset, &line);
            if (rc == 0 && line > INT32_MAX) {
                abort();
            }
        }
    }
}

static void texts(const uint8_t *data, size_t size)
{
    char out[64];
    for (unsigned width = 0; width <= 4; width++) {
        size_t n = ltn_python_text(out, sizeof(out), data, size, width);
        if (n >= sizeof(out) || strlen(out) != n || !ltn_utf8_valid(out, n)) {
            abort();
        }
    }
}

static void records(const uint8_t *data, size_t size)
{
    static struct ltn_event_python_code e;
    struct ltn_python_codes *c = ltn_python_codes_new(size % 3 == 0 ? 4096 : 1 << 20);
    if (c == NULL) {
        return;
    }
    memset(&e, 0, sizeof(e));
    memcpy(&e, data, size < sizeof(e) ? size : sizeof(e));
    for (int i = 0; i < 3; i++) {
        int rc = ltn_python_codes_add(c, &e, sizeof(e));
        struct ltn_python_frame f = {.identity = e.identity, .offset = (uint32_t)size * 2};
        struct ltn_python_line line;
        if (ltn_python_codes_name(c, &f, &line) == 0 &&
            (rc != 0 && i == 0 && e.part_at == 0 ? 1 : strlen(line.file) > LTN_PYTHON_TEXT_BYTES)) {
            abort();
        }
        e.part_at += e.part_bytes;
    }
    ltn_python_codes_free(c);
}

static void published(const uint8_t *data, size_t size)
{
    uint32_t version = ltn_python_layout_version(data, size);
    struct ltn_python_process p;
    bool agreed;
    if (ltn_python_layout_get(version, &p) == 0 &&
        ltn_python_layout_adopt(data, size, &p, &agreed) == 0 &&
        (p.code_word > 13 || p.previous_word > 13 || p.position_word > 13)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lines(data, size);
    texts(data, size);
    records(data, size);
    published(data, size);
    return 0;
}
