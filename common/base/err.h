/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error convention: functions return int, 0 for success and a negative code otherwise.
 * -1..-4095 is a negated errno, -10001 and below stands in LTN_ERR_TABLE. Codes of third-party
 * libraries are mapped where those libraries are used.
 */
#ifndef LTN_BASE_ERR_H
#define LTN_BASE_ERR_H

#include <stdbool.h>

#include "base/attr.h"

/* The answer matrix: what every refusal is in gRPC and in HTTP. Servers answer by this table alone;
 * what a row carries besides (headers, details) stands in common/http/answer.c.
 * name, value, gRPC status, HTTP status, may the caller retry, text */
#define LTN_ERR_TABLE(X)                                                                           \
    X(MALFORMED, -10001, 3, 400, 0, "malformed input")                                             \
    X(TOO_LARGE, -10002, 8, 413, 0, "size limit exceeded")                                         \
    X(BUSY, -10003, 14, 503, 1, "queue full, try again")                                           \
    X(DEPTH, -10004, 3, 400, 0, "nesting too deep")                                                \
    X(COUNT, -10005, 3, 400, 0, "count limit exceeded")                                            \
    X(QUOTA, -10006, 14, 429, 1, "rate limit exceeded, try again later")                           \
    X(UNSUPPORTED, -10007, 12, 415, 0, "not supported")                                            \
    X(NOT_FOUND, -10008, 5, 404, 0, "not found")                                                   \
    X(METHOD, -10009, 12, 405, 0, "method not allowed")                                            \
    X(UNAUTHENTICATED, -10010, 16, 401, 0, "missing or wrong credentials")                         \
    X(FORBIDDEN, -10011, 7, 403, 0, "not allowed")                                                 \
    X(TIMEOUT, -10012, 4, 504, 1, "deadline passed")                                               \
    X(CORRUPT, -10013, 15, 500, 0, "stored data is damaged")                                       \
    X(CLOSED, -10014, 14, 503, 1, "connection closed")                                             \
    X(DISK, -10015, 14, 503, 1, "database cannot be written")                                      \
    X(CONFIG, -10016, 9, 400, 0, "wrong configuration")                                            \
    X(UNAVAILABLE, -10017, 14, 503, 1, "service unavailable")                                      \
    X(INTERNAL, -10018, 13, 500, 0, "internal error")                                              \
    X(HEAD, -10019, 8, 431, 0, "request head too large")                                           \
    X(NO_SERVICE, -10020, 12, 404, 0, "unknown path, service or method")                           \
    X(TYPE, -10021, 12, 415, 0, "content type not supported")                                      \
    X(CODING, -10022, 12, 415, 0, "content encoding not supported")                                \
    X(FRAMING, -10023, 13, 400, 0, "broken gRPC framing")                                          \
    X(MESSAGES, -10024, 12, 400, 0, "exactly one message is expected")                             \
    X(SLOW, -10025, 4, 408, 0, "request came too slowly")                                          \
    X(RESPONSE, -10026, 8, 500, 0, "response over the size limit")                                 \
    X(CERTIFICATE, -10027, 16, 401, 0, "a client certificate is needed, over TLS")                 \
    X(SCOPE, -10028, 7, 403, 0, "the token is of one cluster, this needs one of all")

enum ltn_err {
#define LTN_ERR_ENUM(name, value, grpc, http, retry, text) LTN_ERR_##name = (value),
    LTN_ERR_TABLE(LTN_ERR_ENUM)
#undef LTN_ERR_ENUM
};

/* Longest message an ltn_errinfo keeps, with its terminator. */
#define LTN_ERRINFO_BYTES 256

/* Detail for people, at the edges only (configuration, command line, start-up): what failed and
 * what to do about it. */
struct ltn_errinfo {
    int code;
    char msg[LTN_ERRINFO_BYTES];
};

/* Text of a code, static storage. Any int is allowed; 0 is "success". Thread-safe. */
const char *ltn_err_str(int rc);

/* gRPC status (0..16) and HTTP status for a code; 0 and 200 for success, 13 and 500 for an errno
 * without a better match. */
int ltn_err_grpc(int rc);
int ltn_err_http(int rc);

/* True when the same request may succeed later without a change. */
bool ltn_err_retryable(int rc);

/* Fills *info (may be NULL) with code and a formatted message, cut at its size; returns code, so
 * that callers can return it. */
int ltn_errinfo_set(struct ltn_errinfo *info, int code, const char *fmt, ...) ltn_printf(3, 4);

#endif /* LTN_BASE_ERR_H */
