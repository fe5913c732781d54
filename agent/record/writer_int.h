/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the writer share. */
#ifndef LTN_RECORD_WRITER_INT_H
#define LTN_RECORD_WRITER_INT_H

#include "record/writer.h"

/* Id of a text, cleaned and cut; 0 for an empty one. Errors of common/sql/db.h. */
int ltn_writer_string_id(struct ltn_writer *w, const char *text, int64_t *ret) ltn_must_check;

/* Id of a process that no window may have shown yet. */
int ltn_writer_proc_id(struct ltn_writer *w, uint32_t pid, uint64_t start_ns, uint64_t seen_ns,
                       int64_t *ret) ltn_must_check;

/* What the host did in the window with this id. */
int ltn_writer_host(struct ltn_writer *w, const struct ltn_window *window,
                    int64_t id) ltn_must_check;

#endif /* LTN_RECORD_WRITER_INT_H */
