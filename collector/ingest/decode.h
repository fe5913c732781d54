/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the bytes of an OTLP export request to an update and to series. Agents' metrics
 * (docs/internals/wire.md) become nodes, processes and windows; metrics of anybody are
 * taken into the table of series once the whole request was read; the rest is counted. Everything
 * is checked, cleaned and cut here, so that what follows may trust it.
 */
#ifndef LTN_INGEST_DECODE_H
#define LTN_INGEST_DECODE_H

#include "base/attr.h"
#include "fleet/update.h"
#include "otlp/json_read.h"
#include "otlp/reader.h"
#include "prom/series.h"

struct ltn_decoder;

struct ltn_decode_result {
    uint64_t accepted; /* points or records, also those that are only counted */
    uint64_t rejected;
    uint64_t unexposed;        /* accepted points without a usable name, value or room */
    size_t samples;            /* values of series taken */
    const char *message;       /* why the first was rejected; static; NULL when none was */
    char metric[96];           /* and of what metric; "" when that says nothing */
    struct ltn_update *update; /* the caller's */
};

/* Scratch memory for one thread, and the table that series go to (borrowed). NULL when out of
 * memory. */
struct ltn_decoder *ltn_decoder_new(struct ltn_series *series) ltn_must_check;
void ltn_decoder_free(struct ltn_decoder *d);

/* Confines what follows to one cluster (NULL: none): a request with a resource that names another
 * gives LTN_ERR_FORBIDDEN, agents that name none are taken to be of it. Borrowed; must outlive the
 * updates made. */
void ltn_decoder_confine(struct ltn_decoder *d, const char *cluster);

/* LTN_ERR_FORBIDDEN when the update speaks for a node that the fleet knows in another cluster. Loop
 * thread. cluster NULL: 0. */
struct ltn_fleet;
int ltn_confine_nodes(const struct ltn_fleet *f, const struct ltn_update *u,
                      const char *cluster) ltn_must_check;

/* Decode the body of a metrics or a logs export request. On success ret->update is new and belongs
 * to the caller (ltn_update_free). LTN_ERR_MALFORMED, LTN_ERR_DEPTH, LTN_ERR_COUNT,
 * LTN_ERR_TOO_LARGE, -ENOMEM. */
int ltn_decode_metrics(struct ltn_decoder *d, const void *body, size_t n, uint64_t received_ns,
                       struct ltn_decode_result *ret) ltn_must_check;
int ltn_decode_logs(struct ltn_decoder *d, const void *body, size_t n, uint64_t received_ns,
                    struct ltn_decode_result *ret) ltn_must_check;

/* What a JSON body may become as protobuf: above this the request is refused. */
#define LTN_JSON_MAX_BYTES ((size_t)64 << 20)

/* Turns a JSON body into protobuf for the functions of this file. *body and *n then describe memory
 * of the decoder, until ltn_decode_json_done, which also gives back what a large body needed.
 * Errors of ltn_otlp_json_read. */
int ltn_decode_json(struct ltn_decoder *d, enum ltn_otlp_signal signal, const uint8_t **body,
                    size_t *n, struct ltn_otlp_json_info *ret_info) ltn_must_check;
void ltn_decode_json_done(struct ltn_decoder *d);

/* Counts the spans of a trace export request. LTN_ERR_MALFORMED, LTN_ERR_DEPTH. */
int ltn_decode_count_spans(const void *body, size_t n, uint64_t *ret_spans) ltn_must_check;

void ltn_update_free(struct ltn_update *u);

#endif /* LTN_INGEST_DECODE_H */
