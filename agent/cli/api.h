/* SPDX-License-Identifier: Apache-2.0 */
/* The local API beside capture. Main thread. */
#ifndef LTN_CLI_API_H
#define LTN_CLI_API_H

#include "cli/options.h"
#include "serve/serve.h"

#define LTN_API_DEFAULT "127.0.0.1:8421"

/* Starts the API where --listen says; by_default is taken for "auto" (NULL: none). An address that
 * is not allowed is an error; one that cannot be had is logged, because capture matters more.
 * *ret is NULL when nothing listens. Free with ltn_serve_stop. */
int ltn_api_start(const struct ltn_agent_options *o, const char *by_default, const char *db_path,
                  struct ltn_serve **ret, struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_CLI_API_H */
