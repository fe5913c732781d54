/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the node's database where the options or the custom of the subcommand say. Main thread. */
#ifndef LTN_CLI_STORE_H
#define LTN_CLI_STORE_H

#include "cli/options.h"
#include "record/record.h"

/* Where the database lies: --db, else for a service /var/lib/lanterne/lanterne.db, else
 * .lanterne/lanterne.db in the invoker's home. 0 or LTN_ERR_TOO_LARGE. */
int ltn_store_path(const struct ltn_agent_options *o, bool service, char *out,
                   size_t size) ltn_must_check;

/* Makes the folder, opens the database and starts its thread. Under sudo folder and file belong to
 * the invoker. 0 or a negative code with a message. Close with ltn_record_close. encoder may be
 * NULL. */
int ltn_store_open(const struct ltn_agent_options *o, bool service,
                   const struct ltn_record_encoder *encoder, struct ltn_record **ret,
                   struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_CLI_STORE_H */
