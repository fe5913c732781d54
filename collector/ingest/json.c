/* SPDX-License-Identifier: Apache-2.0 */
/* JSON bodies. */
#include "ingest/decode.h"
#include "ingest/internal.h"
#include "otlp/pb_read.h"

/* Memory kept from one request to the next. */
#define KEEP_BYTES ((size_t)1 << 20)

int ltn_decode_json(struct ltn_decoder *d, enum ltn_otlp_signal signal, const uint8_t **body,
                    size_t *n, struct ltn_otlp_json_info *ret_info)
{
    ltn_buf_reset(&d->json);
    int rc = ltn_otlp_json_read(signal, *body, *n, LTN_PB_DEPTH_DEFAULT, &d->json, ret_info);
    if (rc != 0)
        return rc;
    *body = (const uint8_t *)ltn_buf_str(&d->json);
    *n = d->json.len;
    return 0;
}

void ltn_decode_json_done(struct ltn_decoder *d)
{
    if (d->json.size > KEEP_BYTES)
        ltn_buf_done(&d->json);
}
