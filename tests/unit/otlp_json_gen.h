/* SPDX-License-Identifier: Apache-2.0 */
/* A packed OTLP request as JSON text, by the descriptors that protobuf-c generated: nothing in it
 * is shared with the reader under test. */
#ifndef LTN_TESTS_OTLP_JSON_GEN_H
#define LTN_TESTS_OTLP_JSON_GEN_H

#include <stdbool.h>

#include "otlp_gen.h"

/* Appends the text. wild: members shuffled, repeated, cut in pieces and null, unknown ones strewn
 * in, white space, escapes, numbers in every form that means the same. */
void otlp_json_write(struct otlp_rng *r, bool logs, const struct ltn_buf *in, bool wild,
                     struct ltn_buf *out);

#endif /* LTN_TESTS_OTLP_JSON_GEN_H */
