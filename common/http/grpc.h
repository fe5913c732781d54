/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC over HTTP/2, the parts without I/O: message framing, grpc-timeout, grpc-message,
 * google.rpc.Status with RetryInfo, base64 of "-bin" fields. Used inside the room and by tests.
 */
#ifndef LTN_HTTP_GRPC_H
#define LTN_HTTP_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"

#define LTN_GRPC_PREFIX_BYTES 5

enum ltn_grpc_code {
    LTN_GRPC_OK = 0,
    LTN_GRPC_CANCELLED = 1,
    LTN_GRPC_UNKNOWN = 2,
    LTN_GRPC_INVALID_ARGUMENT = 3,
    LTN_GRPC_DEADLINE_EXCEEDED = 4,
    LTN_GRPC_NOT_FOUND = 5,
    LTN_GRPC_PERMISSION_DENIED = 7,
    LTN_GRPC_RESOURCE_EXHAUSTED = 8,
    LTN_GRPC_UNIMPLEMENTED = 12,
    LTN_GRPC_INTERNAL = 13,
    LTN_GRPC_UNAVAILABLE = 14,
    LTN_GRPC_UNAUTHENTICATED = 16,
};

/* Whether a content type in lower case is that of gRPC. */
bool ltn_grpc_is_type(const char *type);

/* One message being put together from any cut of its bytes. */
struct ltn_grpc_frame {
    uint8_t prefix[LTN_GRPC_PREFIX_BYTES];
    size_t prefix_len;
    bool compressed;
    uint32_t declared; /* length in the prefix */
    struct ltn_buf message;
};

void ltn_grpc_frame_init(struct ltn_grpc_frame *f, size_t max_message_bytes);
void ltn_grpc_frame_done(struct ltn_grpc_frame *f);
/* Gets ready for the next message; keeps the memory. */
void ltn_grpc_frame_reset(struct ltn_grpc_frame *f);

/* Eats bytes up to the end of the message; *ret_used says how many. 1: the message is complete (an
 * empty one right with its prefix); 0: more is needed; LTN_ERR_TOO_LARGE: the declared length
 * passes the limit (nothing of it is kept); LTN_ERR_MALFORMED: a flag that is not 0 or 1; -ENOMEM.
 */
int ltn_grpc_frame_feed(struct ltn_grpc_frame *f, const uint8_t *p, size_t n,
                        size_t *ret_used) ltn_must_check;

/* True when a message has begun and not ended. */
bool ltn_grpc_frame_partial(const struct ltn_grpc_frame *f);

/* Writes the prefix of a message. */
void ltn_grpc_prefix(uint8_t out[LTN_GRPC_PREFIX_BYTES], bool compressed, uint32_t len);

/* "100m" to nanoseconds; false when malformed. Saturates. */
bool ltn_grpc_timeout_parse(const char *s, uint64_t *ret_ns);
/* Nanoseconds to the finest unit that fits 8 digits. out holds at least 16 bytes. */
void ltn_grpc_timeout_format(uint64_t ns, char out[16]);

/* Appends a grpc-message, percent-encoded, at most max bytes of output. */
int ltn_grpc_message_encode(struct ltn_buf *out, const char *text, size_t max);
/* Decodes in the lenient way the protocol asks for: bad escapes stay as they are. */
int ltn_grpc_message_decode(struct ltn_buf *out, const char *text);

/* Base64 without padding; decoding takes it with or without. 0, LTN_ERR_MALFORMED, or of the
 * buffer. */
int ltn_base64_encode(struct ltn_buf *out, const uint8_t *p, size_t n);
int ltn_base64_decode(struct ltn_buf *out, const char *s, size_t n);

/* Appends google.rpc.RetryInfo, or google.rpc.Status with a RetryInfo in its details when
 * retry_ms is not 0. */
int ltn_rpc_retry_info(struct ltn_buf *out, uint32_t retry_ms);
int ltn_rpc_status(struct ltn_buf *out, int code, const char *message, uint32_t retry_ms);
/* google.rpc.Status with a BadRequest in its details that says of field what message says; field
 * NULL: without details. */
int ltn_rpc_status_bad_request(struct ltn_buf *out, int code, const char *message,
                               const char *field);

/* The hint to come again, for the two fields in which clients look for it, as their text: appends
 * to details that of "grpc-status-details-bin", to retry that of "google.rpc.retryinfo-bin". 0, or
 * of the buffers. */
int ltn_grpc_hint(struct ltn_buf *details, struct ltn_buf *retry, int status, const char *message,
                  uint32_t retry_ms);

/* Retry delay from an encoded RetryInfo or Status. False when there is none. */
bool ltn_rpc_retry_info_parse(const uint8_t *p, size_t n, uint64_t *ret_ns);
bool ltn_rpc_status_retry_parse(const uint8_t *p, size_t n, uint64_t *ret_ns);

/* First length-delimited field with this number in a protobuf message; false when absent or the
 * bytes are broken. */
bool ltn_pb_find_bytes(const uint8_t *p, size_t n, uint32_t field, const uint8_t **ret_p,
                       size_t *ret_n);

#endif /* LTN_HTTP_GRPC_H */
