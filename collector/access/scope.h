/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster that a request may speak for: what `authorize` found stays with it as its tag. */
#ifndef LTN_ACCESS_SCOPE_H
#define LTN_ACCESS_SCOPE_H

#include <string.h>

#include "http/server.h"

/* NULL: any. The text stays valid as long as the access object lives. Any thread. */
static inline const char *ltn_scope_cluster(const struct ltn_http_request *req)
{
    return (const char *)(uintptr_t)ltn_http_tag(req); /* NOLINT: set from a pointer */
}

/* Whether something that names that cluster ("": none) may pass. What names none is taken to be of
 * the token's. */
static inline bool ltn_scope_allows(const char *only, const char *cluster)
{
    return only == NULL || cluster[0] == '\0' || strcmp(only, cluster) == 0;
}

#endif /* LTN_ACCESS_SCOPE_H */
