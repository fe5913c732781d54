/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of OTLP as tables: names of JSON members, their protobuf fields and forms. Inner to
 * this folder.
 */
#ifndef LTN_OTLP_JSON_SCHEMA_H
#define LTN_OTLP_JSON_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "otlp/json_read.h"

enum ltn_json_form {
    LTN_JSON_MESSAGE,
    LTN_JSON_TEXT,
    LTN_JSON_BASE64,
    LTN_JSON_HEX, /* bytes: identifiers of traces and spans */
    LTN_JSON_BOOL,
    LTN_JSON_INT64, /* varint */
    LTN_JSON_UINT64,
    LTN_JSON_INT32, /* also the open enums */
    LTN_JSON_ENUM,  /* as INT32, but a number only: names are not allowed, so no strings */
    LTN_JSON_UINT32,
    LTN_JSON_SINT32,
    LTN_JSON_FIXED64,
    LTN_JSON_SFIXED64,
    LTN_JSON_FIXED32,
    LTN_JSON_DOUBLE,
};

struct ltn_json_message;

struct ltn_json_field {
    const char *name;
    uint8_t name_len;
    uint8_t number;
    uint8_t form; /* enum ltn_json_form */
    bool repeated;
    const struct ltn_json_message *message; /* of MESSAGE */
};

struct ltn_json_message {
    const struct ltn_json_field *fields; /* in the order in which they are usually written */
    uint8_t n;
    bool large; /* its length is written with four bytes at once, so that nothing need be moved */
};

/* The request of a signal. */
const struct ltn_json_message *ltn_json_request(enum ltn_otlp_signal signal);

#endif /* LTN_OTLP_JSON_SCHEMA_H */
