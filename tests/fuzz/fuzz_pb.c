/* SPDX-License-Identifier: Apache-2.0 */
/* The wire reader on any bytes: what it reads and the writer writes again must read the same. */
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "otlp/pb_read.h"
#include "otlp/pb_write.h"
#include "otlp/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void write_field(struct ltn_buf *b, const struct ltn_pb_field *f)
{
    switch (f->type) {
    case LTN_PB_VARINT:
        ltn_pb_put_u64_field(b, f->number, f->value);
        break;
    case LTN_PB_I64:
        ltn_pb_put_i64_field(b, f->number, f->value);
        break;
    case LTN_PB_I32:
        ltn_pb_put_i32_field(b, f->number, (uint32_t)f->value);
        break;
    default:
        ltn_pb_put_bytes_field(b, f->number, f->data, (size_t)f->value);
        break;
    }
}

static void same_fields(const struct ltn_buf *b, const uint8_t *data, size_t size)
{
    struct ltn_pb_cur x, y;
    struct ltn_pb_field f, g;
    ltn_pb_init(&x, data, size, 4);
    ltn_pb_init(&y, b->data, b->len, 4);
    while (ltn_pb_next(&x, &f) > 0) {
        require(ltn_pb_next(&y, &g) == 1);
        require(f.number == g.number && f.type == g.type && f.value == g.value);
        require(f.type != LTN_PB_LEN || memcmp(f.data, g.data, (size_t)f.value) == 0);
    }
    require(ltn_pb_next(&y, &g) == 0);
}

/* Goes down the first field of each level that can be entered. */
static void descend(const uint8_t *data, size_t size)
{
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    unsigned levels = 0;
    ltn_pb_init(&c, data, size, 32);
    while (ltn_pb_next(&c, &f) > 0) {
        struct ltn_pb_cur sub;
        uint64_t out[16];
        size_t n = 0;
        (void)!ltn_pb_repeated(&f, LTN_PB_VARINT, out, 16, &n);
        (void)!ltn_pb_repeated(&f, LTN_PB_I64, out, 16, &n);
        (void)!ltn_pb_repeated(&f, LTN_PB_I32, out, 16, &n);
        require(n <= 16);
        int rc = ltn_pb_enter(&c, &f, &sub);
        if (rc == 0) {
            c = sub;
            require(++levels < 32);
        } else {
            require(rc == LTN_ERR_DEPTH || f.type != LTN_PB_LEN);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_pb_cur c;
    struct ltn_pb_field f;
    struct ltn_buf b;
    struct ltn_otlp_status status;
    struct ltn_otlp_str message;
    uint64_t rejected;
    int rc;
    ltn_buf_init(&b, size + 64);
    ltn_pb_init(&c, data, size, 4);
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        write_field(&b, &f);
    }
    require(rc == 0 || rc == LTN_ERR_MALFORMED);
    require(ltn_buf_error(&b) == 0); /* never longer than what was read */
    if (rc == 0) {
        same_fields(&b, data, size);
    }
    ltn_buf_done(&b);
    descend(data, size);
    (void)!ltn_otlp_status_read(data, size, &status);
    (void)!ltn_otlp_response_read(data, size, &rejected, &message);
    return 0;
}
