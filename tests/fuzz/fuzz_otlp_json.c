/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text as a request of each signal: what is accepted is well-formed protobuf, of bounded size,
 * and the same again when read again; a small ceiling is kept. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "otlp/json_read.h"
#include "otlp/logs_read.h"
#include "otlp/metrics_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEPTH       32
#define SMALL_BYTES 100

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    (void)g;
    (void)m;
    *(uint64_t *)ctx += p->point.attrs.n;
    return 0;
}

static int on_histogram(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_histogram *p)
{
    (void)g;
    (void)m;
    *(uint64_t *)ctx += p->bucket_n;
    return 0;
}

static int on_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                  const struct ltn_otlp_exp_histogram *p)
{
    (void)g;
    (void)m;
    *(uint64_t *)ctx += p->positive.n;
    return 0;
}

static int on_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *log)
{
    (void)g;
    *(uint64_t *)ctx += log->attrs.n;
    return 0;
}

static void read_back(enum ltn_otlp_signal signal, const struct ltn_buf *b)
{
    static struct ltn_otlp_reader *reader;
    uint64_t sum = 0;
    const struct ltn_otlp_metrics_sink metrics = {&sum, on_number, on_histogram, on_exp, NULL};
    const struct ltn_otlp_logs_sink logs = {&sum, on_log};
    struct ltn_otlp_counts counts;
    if (reader == NULL) {
        reader = ltn_otlp_reader_new(NULL);
        require(reader != NULL);
    }
    int rc = signal == LTN_OTLP_LOGS
                 ? ltn_otlp_logs_read(reader, b->data, b->len, &logs, &counts)
                 : ltn_otlp_metrics_read(reader, b->data, b->len, &metrics, &counts);
    require(rc != LTN_ERR_MALFORMED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum ltn_otlp_signal signals[] = {LTN_OTLP_METRICS, LTN_OTLP_LOGS,
                                                   LTN_OTLP_TRACES};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(signals); i++) {
        struct ltn_otlp_json_info info;
        struct ltn_buf out, small;
        ltn_buf_init(&out, (size_t)1 << 27);
        ltn_buf_init(&small, SMALL_BYTES);
        int rc = ltn_otlp_json_read(signals[i], data, size, DEPTH, &out, &info);
        require(rc == 0 || rc == LTN_ERR_MALFORMED || rc == LTN_ERR_DEPTH);
        require(info.error_at <= size && out.len <= 4 * size + 16);
        if (rc == 0) {
            read_back(signals[i], &out);
        }
        int rc_small = ltn_otlp_json_read(signals[i], data, size, DEPTH, &small, &info);
        require(small.len <= SMALL_BYTES);
        if (rc == 0 && rc_small == 0) {
            require(small.len == out.len && memcmp(small.data, out.data, out.len) == 0);
        } else {
            require(rc_small == rc || rc_small == LTN_ERR_TOO_LARGE);
        }
        ltn_buf_done(&out);
        ltn_buf_done(&small);
    }
    return 0;
}
