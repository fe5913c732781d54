/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP/JSON: an export request as text becomes the same request in protobuf form, in one pass, for
 * the readers of this folder. So both encodings meet the same limits, the same merging of repeated
 * members and the same callbacks, and attributes have the bytes a protobuf client would send.
 *
 * Rules: members in any order, unknown ones skipped at any depth, null is absence, the last of
 * repeated scalars counts and lists and messages add up. 64-bit numbers as text or number, doubles
 * also as "NaN", "Infinity", "-Infinity"; enums as numbers only; identifiers of traces and spans in
 * hex, other bytes in base64 of either alphabet. A byte order mark is skipped. Text that is not
 * valid UTF-8, lone surrogates included, goes through and is marked by the readers. No recursion,
 * no tree: memory is the output, whose size is bounded by four times the input and by the buffer's
 * ceiling.
 */
#ifndef LTN_OTLP_JSON_READ_H
#define LTN_OTLP_JSON_READ_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "otlp/model.h"

struct ltn_otlp_json_info {
    uint64_t unknown;                 /* members skipped because their name means nothing here */
    struct ltn_otlp_str unknown_name; /* the first of them, as in the text; dies with it */
    size_t error_at;                  /* offset of what could not be read */
};

/* Reads n bytes of JSON text; nothing, and white space alone, is an empty request. The request is
 * appended to out, which must be empty. Objects and arrays may nest to twice max_depth (at most
 * 128), as a message of protobuf is an object and often an array in JSON. *ret_info is filled also
 * on error. 0, LTN_ERR_MALFORMED, LTN_ERR_DEPTH, LTN_ERR_TOO_LARGE (out's ceiling), -ENOMEM.
 * Thread-safe as far as its arguments are. */
int ltn_otlp_json_read(enum ltn_otlp_signal signal, const void *data, size_t n, uint32_t max_depth,
                       struct ltn_buf *out, struct ltn_otlp_json_info *ret_info) ltn_must_check;

#endif /* LTN_OTLP_JSON_READ_H */
