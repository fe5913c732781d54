/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms as they lie in the database: one byte version (1), then for each bucket that is not
 * empty its distance from the one before (LEB128) and its count (LEB128). Merging adds counts.
 */
#ifndef LTN_RECORD_HIST_BLOB_H
#define LTN_RECORD_HIST_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "sql/db.h"

/* Appends the blob; nothing at all when every count is 0. Errors of ltn_buf. */
int ltn_hist_blob_write(struct ltn_buf *out, const uint32_t *counts, size_t n) ltn_must_check;
int ltn_hist_blob_write64(struct ltn_buf *out, const uint64_t *counts, size_t n) ltn_must_check;

/* Adds a blob to counts[n]. LTN_ERR_MALFORMED when it is none (counts then hold part of it). */
int ltn_hist_blob_add(const void *blob, size_t len, uint64_t *counts, size_t n) ltn_must_check;

/* Registers hist_merge, hist_quantile and hist_count. */
int ltn_hist_blob_register(struct ltn_db *db) ltn_must_check;

#endif /* LTN_RECORD_HIST_BLOB_H */
