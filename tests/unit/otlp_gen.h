/* SPDX-License-Identifier: Apache-2.0 */
/* Random OTLP requests for differential tests: made with protobuf-c, then rearranged on the wire in
 * ways that must not change their meaning. The same seed gives the same bytes. */
#ifndef LTN_TESTS_OTLP_GEN_H
#define LTN_TESTS_OTLP_GEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct otlp_rng {
    uint64_t state;
};

/* A number below n (n > 0). */
uint64_t otlp_rng_below(struct otlp_rng *r, uint64_t n);

/* Appends a packed request. */
void otlp_gen_metrics(struct otlp_rng *r, struct ltn_buf *out);
void otlp_gen_logs(struct otlp_rng *r, struct ltn_buf *out);

/* Rewrites a packed request at random: fields shuffled, messages that may merge cut in pieces,
 * packed numbers unpacked, scalars repeated, unknown fields strewn in, lengths and tags in longer
 * forms. */
void otlp_gen_rearrange(struct otlp_rng *r, bool logs, const struct ltn_buf *in,
                        struct ltn_buf *out);

#endif /* LTN_TESTS_OTLP_GEN_H */
