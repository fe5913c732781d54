/* SPDX-License-Identifier: Apache-2.0 */
/* How far the clocks of the nodes of a merged record are apart. */
#ifndef LTN_CLI_MERGE_SKEW_H
#define LTN_CLI_MERGE_SKEW_H

#include "base/attr.h"
#include "cli/merge.h"
#include "sql/db.h"

/* Fills the skew members: for each pair of nodes (of the first 32) the median difference between
 * the entries of the two into the same collective, by communicator and sequence number. A rank that
 * is slow counts as late, so the figure is an upper hint and not a clock measurement. Errors of
 * common/sql/db.h. */
int ltn_merge_skew(struct ltn_db *db, struct ltn_merge_result *ret) ltn_must_check;

#endif /* LTN_CLI_MERGE_SKEW_H */
