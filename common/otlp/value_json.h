/* SPDX-License-Identifier: Apache-2.0 */
/* Values as JSON text. */
#ifndef LTN_OTLP_VALUE_JSON_H
#define LTN_OTLP_VALUE_JSON_H

#include "base/buf.h"
#include "otlp/model.h"

/* Appends the value as JSON, nested ones with all that is in them; bytes in base64, numbers that
 * JSON has no form for as null. Text that is not valid UTF-8 is mended. 0, the buffer's error, or
 * LTN_ERR_* when nested bytes are malformed (then *out holds a part of it). Thread-safe. */
int ltn_otlp_value_json(const struct ltn_otlp_value *v, struct ltn_buf *out) ltn_must_check;

#endif /* LTN_OTLP_VALUE_JSON_H */
