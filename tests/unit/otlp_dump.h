/* SPDX-License-Identifier: Apache-2.0 */
/* One request as text, twice: as our reader understands it and as protobuf-c does. Equal texts mean
 * equal understanding. */
#ifndef LTN_TESTS_OTLP_DUMP_H
#define LTN_TESTS_OTLP_DUMP_H

#include <stdbool.h>

#include "base/buf.h"
#include "otlp/reader.h"

/* 0 or the error of the reader. */
int otlp_dump_ours(struct ltn_otlp_reader *r, bool logs, const struct ltn_buf *in,
                   struct ltn_buf *out);

/* False when protobuf-c refuses the bytes. */
bool otlp_dump_oracle(bool logs, const struct ltn_buf *in, struct ltn_buf *out);

#endif /* LTN_TESTS_OTLP_DUMP_H */
