/* SPDX-License-Identifier: Apache-2.0 */
/* A metrics request on its way into series, twice: the second time most points are known by their
 * bytes alone, and the verdict on each must be the same. */
#include <stdint.h>
#include <stdlib.h>

#include "ingest/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_decoder *d = ltn_decoder_new(s);
    struct ltn_decode_result r[2];
    int rc[2];
    require(s != NULL && d != NULL);
    for (int i = 0; i < 2; i++) {
        rc[i] = ltn_decode_metrics(d, data, size, 1, &r[i]);
        ltn_update_free(r[i].update);
    }
    require(rc[0] == rc[1]);
    if (rc[0] == 0)
        require(r[0].accepted == r[1].accepted && r[0].rejected == r[1].rejected &&
                r[0].unexposed == r[1].unexposed && r[0].samples == r[1].samples);
    ltn_decoder_free(d);
    ltn_series_free(s);
    return 0;
}
