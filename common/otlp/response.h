/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small messages that go back: export responses, google.rpc.Status and google.rpc.RetryInfo.
 * Writers append to the buffer and return 0, LTN_ERR_TOO_LARGE or -ENOMEM (nothing appended then).
 * Thread-safe as far as their arguments are.
 */
#ifndef LTN_OTLP_RESPONSE_H
#define LTN_OTLP_RESPONSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "otlp/model.h"

/* Text in a response is cut at this many bytes, at a character. */
#define LTN_OTLP_MESSAGE_MAX_BYTES 1024

/* ExportMetricsServiceResponse and ExportLogsServiceResponse have one wire form. rejected == 0 with
 * message NULL or empty is full success: no bytes. */
int ltn_otlp_response_write(struct ltn_buf *out, uint64_t rejected,
                            const char *message) ltn_must_check;

/* The same as JSON text, whose member for the number depends on the signal: {} on full success. */
int ltn_otlp_response_json(struct ltn_buf *out, enum ltn_otlp_signal signal, uint64_t rejected,
                           const char *message) ltn_must_check;

/* google.rpc.Status, the body of HTTP errors and of grpc-status-details-bin. With retry_ns > 0 it
 * carries a RetryInfo detail. code is a gRPC status (0..16), message may be NULL. */
int ltn_otlp_status_write(struct ltn_buf *out, int code, const char *message,
                          uint64_t retry_ns) ltn_must_check;

/* A bare google.rpc.RetryInfo, for the trailer google.rpc.retryinfo-bin. */
int ltn_otlp_retry_info_write(struct ltn_buf *out, uint64_t retry_ns) ltn_must_check;

/* Reads an export response: *ret_rejected and *ret_message (a view into data) are 0 and empty on
 * full success. 0, LTN_ERR_MALFORMED, LTN_ERR_DEPTH. */
int ltn_otlp_response_read(const void *data, size_t n, uint64_t *ret_rejected,
                           struct ltn_otlp_str *ret_message) ltn_must_check;

struct ltn_otlp_status {
    int code;
    struct ltn_otlp_str message; /* a view into the data */
    uint64_t retry_ns;           /* from a RetryInfo detail; 0 when there is none */
};

/* Reads a google.rpc.Status. Errors as above. */
int ltn_otlp_status_read(const void *data, size_t n, struct ltn_otlp_status *ret) ltn_must_check;

#endif /* LTN_OTLP_RESPONSE_H */
