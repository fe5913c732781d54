/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows and incident changes as OTLP requests, exactly as docs/internals/wire.md says. An encoder
 * remembers when each process was first seen, the start time of its cumulative sums. One thread at
 * a time.
 */
#ifndef LTN_PUSH_ENCODE_H
#define LTN_PUSH_ENCODE_H

#include "base/attr.h"
#include "record/record.h"

struct ltn_push_encoder;

struct ltn_push_encoder_conf {
    const char *instance_id;  /* random per agent start; NULL: made here */
    const char *node;         /* host.name */
    const char *cluster;      /* NULL or "": absent */
    const char *version;      /* NULL: this build's */
    uint64_t started_ns;      /* start of the agent, start time of its own sums; 0: now */
    size_t max_request_bytes; /* larger windows are split; 0: 1 MiB */
};

/* Creates an encoder; everything is copied. 0, -EINVAL without a node name, -ENOMEM. Free with
 * ltn_push_encoder_free (NULL-safe). */
int ltn_push_encoder_new(const struct ltn_push_encoder_conf *conf,
                         struct ltn_push_encoder **ret_encoder) ltn_must_check;
void ltn_push_encoder_free(struct ltn_push_encoder *e);

/* The service.instance.id; belongs to the encoder. */
const char *ltn_push_encoder_instance(const struct ltn_push_encoder *e);

/* Encodes a window into one or more requests, each complete in itself. Encoding the same window
 * again gives the same bytes. 0, -ENOMEM, LTN_ERR_TOO_LARGE when max_request_bytes cannot hold one
 * point, or what emit returned. */
int ltn_push_encode_window(struct ltn_push_encoder *e, const struct ltn_window *w,
                           uint64_t sequence, ltn_record_emit_fn emit,
                           void *emit_ctx) ltn_must_check;

/* Encodes one incident change as a logs request; errors as above. */
int ltn_push_encode_incident(struct ltn_push_encoder *e, const struct ltn_record_incident *i,
                             ltn_record_emit_fn emit, void *emit_ctx) ltn_must_check;

/* The encoder in the form that ltn_record_open takes; borrows e. */
struct ltn_record_encoder ltn_push_record_encoder(struct ltn_push_encoder *e);

/* Points that were too large for any request, since the encoder was made. */
uint64_t ltn_push_points_dropped(const struct ltn_push_encoder *e);

#endif /* LTN_PUSH_ENCODE_H */
