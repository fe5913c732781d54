/* SPDX-License-Identifier: Apache-2.0 */
/* What a maintainer needs to see of a machine, as one tar.gz. Pure but for the final write; one
 * thread at a time. */
#ifndef LTN_CLI_BUNDLE_H
#define LTN_CLI_BUNDLE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct ltn_bundle {
    struct ltn_buf tar;
};

void ltn_bundle_init(struct ltn_bundle *b);
void ltn_bundle_done(struct ltn_bundle *b);

/* Adds a file (name at most 99 bytes) with this content, secrets taken out. Failures stick. */
void ltn_bundle_add(struct ltn_bundle *b, const char *name, const char *text, size_t n);

/* Adds what can be read of a small file; nothing when it cannot. */
void ltn_bundle_add_file(struct ltn_bundle *b, const char *name, const char *path);

/* Writes PATH with mode 0600; it must not exist. 0 or a negative code with a message. */
int ltn_bundle_write(struct ltn_bundle *b, const char *path,
                     struct ltn_errinfo *info) ltn_must_check;

/* Appends text to out with user names and passwords in URLs ("//user:word@"), bearer tokens and
 * values of keys that sound secret replaced by "[removed]". */
void ltn_bundle_redact(struct ltn_buf *out, const char *text, size_t n);

#endif /* LTN_CLI_BUNDLE_H */
