/* SPDX-License-Identifier: Apache-2.0 */
/* What `lanterne check` takes from the record: the doubts of the agent about its own readings. */
#ifndef LTN_CLI_CHECK_RECORD_H
#define LTN_CLI_CHECK_RECORD_H

#include "discover/kernel.h"

/* The finding "arguments" from the database at path, as of its newest window; the counts are those
 * of the agent that made it. False when there is no record to look at. */
bool ltn_check_arguments(const char *path, struct ltn_finding *ret);

#endif /* LTN_CLI_CHECK_RECORD_H */
