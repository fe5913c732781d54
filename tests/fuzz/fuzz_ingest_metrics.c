/* SPDX-License-Identifier: Apache-2.0 */
/* A metrics request on its way into series, twice: the second time most points are known by their
 * bytes alone, and the verdict on each must be the same. Then all of it is written, in both
 * formats.
 */
#include <stdint.h>
#include <stdlib.h>

#include "ingest/decode.h"
#include "prom/hist_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

static void write_all(struct ltn_series *s, enum ltn_prom_format f)
{
    struct ltn_buf b;
    struct ltn_prom p;
    ltn_buf_init(&b, (size_t)1 << 26);
    ltn_prom_begin(&p, &b, f);
    ltn_series_write(s, &p);
    ltn_prom_end(&p);
    require(ltn_buf_error(&b) == 0);
    for (size_t i = 0; i < b.len; i++) /* no line is broken by what a client sent */
        require(b.data[i] == '\n' || (unsigned char)b.data[i] >= 0x20);
    ltn_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_decoder *d = ltn_decoder_new(s);
    struct ltn_decode_result r[2];
    int rc[2];
    require(s != NULL && d != NULL && ltn_hist_attach(s, 0) == 0);
    for (int i = 0; i < 2; i++) {
        rc[i] = ltn_decode_metrics(d, data, size, 1, &r[i]);
        ltn_update_free(r[i].update);
    }
    require(rc[0] == rc[1]);
    if (rc[0] == 0)
        require(r[0].accepted == r[1].accepted && r[0].rejected == r[1].rejected &&
                r[0].unexposed == r[1].unexposed && r[0].samples == r[1].samples);
    write_all(s, LTN_PROM_TEXT);
    write_all(s, LTN_PROM_OPENMETRICS);
    ltn_decoder_free(d);
    ltn_series_free(s);
    return 0;
}
