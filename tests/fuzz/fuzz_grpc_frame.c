/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC framing in any cut, and what is decoded from trailers and compressed bodies. */
#include <stdlib.h>
#include <string.h>

#include "http/coding.h"
#include "http/grpc.h"

#define MAX_BYTES 5000

static void frames(const uint8_t *p, size_t n, size_t step)
{
    struct ltn_grpc_frame f;
    size_t pos = 0;
    ltn_grpc_frame_init(&f, MAX_BYTES);
    while (pos < n) {
        size_t used = 0;
        size_t part = n - pos < step ? n - pos : step;
        int rc = ltn_grpc_frame_feed(&f, p + pos, part, &used);
        if (f.message.len > MAX_BYTES || used > part || (rc == 0 && used != part)) {
            abort();
        }
        if (rc < 0) {
            break;
        }
        pos += used;
        if (rc == 1) {
            if (f.message.len != f.declared) {
                abort();
            }
            ltn_grpc_frame_reset(&f);
        }
    }
    ltn_grpc_frame_done(&f);
}

static void texts(const uint8_t *p, size_t n)
{
    char *text = malloc(n + 1);
    struct ltn_buf b;
    uint64_t ns;
    memcpy(text, p, n);
    text[n] = '\0';
    ltn_buf_init(&b, 2 * n + 16);
    (void)ltn_grpc_timeout_parse(text, &ns);
    (void)ltn_grpc_message_decode(&b, text);
    ltn_buf_reset(&b);
    (void)ltn_base64_decode(&b, text, n);
    (void)ltn_rpc_status_retry_parse((const uint8_t *)ltn_buf_str(&b), b.len, &ns);
    (void)ltn_rpc_status_retry_parse(p, n, &ns);
    (void)ltn_rpc_retry_info_parse(p, n, &ns);
    (void)ltn_accepts_gzip(text);
    ltn_buf_done(&b);
    free(text);
}

static void inflate_both(const uint8_t *p, size_t n)
{
    static struct ltn_inflater *z;
    const struct ltn_inflate_limits limits = {0};
    if (z == NULL) {
        z = ltn_inflater_new(20);
    }
    for (enum ltn_coding c = LTN_CODING_GZIP; c <= LTN_CODING_ZSTD; c++) {
        struct ltn_buf out;
        ltn_buf_init(&out, 100000);
        int rc = ltn_inflate(z, c, p, n, &limits, &out);
        if (out.len > 100000 || (rc != 0 && rc != -10001 && rc != -10002)) {
            abort();
        }
        ltn_buf_done(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 1) {
        return 0;
    }
    frames(p + 1, n - 1, (size_t)p[0] + 1);
    texts(p + 1, n - 1);
    inflate_both(p + 1, n - 1);
    return 0;
}
