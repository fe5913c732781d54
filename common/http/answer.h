/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to a refused request, in whatever form its client speaks. Statuses come from
 * LTN_ERR_TABLE (base/err.h), the headers and details that go with them from the table in
 * answer.c; nothing else in the server chooses a status. Used inside the room.
 */
#ifndef LTN_HTTP_ANSWER_H
#define LTN_HTTP_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

struct ltn_http_request;

struct ltn_answer {
    int rc;                  /* a code of LTN_ERR_TABLE or -errno */
    const char *message;     /* NULL: the code's text */
    uint32_t retry_after_ms; /* of retryable codes; 0: the server's hint */
    const char *value;       /* of the row's header where the table leaves it open (Allow) */
    bool plain_http;         /* HTTP form, also to what looks like gRPC */
};

/* Answers and takes the request, as ltn_http_reply() does. Any thread that owns it. */
void ltn_answer(struct ltn_http_request *rq, const struct ltn_answer *a);

/* Content codings taken, as told with LTN_ERR_CODING. */
#define LTN_HTTP_CODINGS "gzip, zstd"
#define LTN_GRPC_CODINGS "identity,gzip,zstd"

#endif /* LTN_HTTP_ANSWER_H */
