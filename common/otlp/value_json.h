/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values and attributes from the wire as JSON text: strings as they are (invalid UTF-8 becomes
 * U+FFFD), whole numbers and finite doubles as numbers, "NaN", "Infinity" and "-Infinity" as
 * strings, bytes as base64, arrays and key-value lists as arrays and objects, no value as null.
 * Thread-safe; neither allocates nor calls itself.
 */
#ifndef LTN_OTLP_VALUE_JSON_H
#define LTN_OTLP_VALUE_JSON_H

#include "base/attr.h"
#include "base/json.h"
#include "otlp/model.h"

/* Writes one value. Texts and bytes longer than max_text_bytes are cut (between characters), each
 * adding one to *cut. LTN_ERR_MALFORMED or LTN_ERR_DEPTH for nested values that a reader would not
 * have let pass; what was written is then of no use. A full buffer is the buffer's error. */
int ltn_otlp_value_json(struct ltn_json *j, const struct ltn_otlp_value *v, size_t max_text_bytes,
                        uint32_t *cut) ltn_must_check;

/* Bytes of s (n of them) that fit into max without cutting a character. */
size_t ltn_otlp_text_fit(const char *s, size_t n, size_t max);

#endif /* LTN_OTLP_VALUE_JSON_H */
