/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token file: a line for each token, either the token alone, which is good for every cluster
 * and for reading, or the cluster's name ('*' for every) and the token. Empty lines and what
 * follows a '#' at the start of a line are left out. Loop thread.
 */
#ifndef LTN_ACCESS_TOKENS_H
#define LTN_ACCESS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/attr.h"
#include "base/err.h"

#define LTN_TOKENS_MAX 4096

struct ltn_tokens;

/* Without tokens yet. NULL when memory is out. */
struct ltn_tokens *ltn_tokens_new(void) ltn_must_check;
void ltn_tokens_free(struct ltn_tokens *t); /* NULL is ignored */

/* Takes the file's tokens in place of those before; on failure those stay. LTN_ERR_CONFIG with the
 * number of the line, -errno, -ENOMEM. */
int ltn_tokens_load(struct ltn_tokens *t, const char *path,
                    struct ltn_errinfo *info) ltn_must_check;

size_t ltn_tokens_count(const struct ltn_tokens *t);

/* Looks a token up, in a time that does not depend on the tokens that there are. *ret_cluster: the
 * cluster it is bound to, NULL for every; valid while t lives. */
bool ltn_tokens_find(const struct ltn_tokens *t, const char *token, const char **ret_cluster);

#endif /* LTN_ACCESS_TOKENS_H */
