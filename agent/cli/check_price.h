/* SPDX-License-Identifier: Apache-2.0 */
/* What `lanterne check` says about the price of tracing. One thread at a time. */
#ifndef LTN_CLI_CHECK_PRICE_H
#define LTN_CLI_CHECK_PRICE_H

#include <stdbool.h>

#include "discover/kernel.h"
#include "probe/price.h"

/* The price of a call, and how many calls a second the budget (in percent) allows. */
void ltn_check_price(const struct ltn_probe_price *price, double budget_pct,
                     struct ltn_finding *ret);

/* What the agent that writes this database has turned down; false when none wrote a window within
 * the last minutes. */
bool ltn_check_detail(const char *db_path, struct ltn_finding *ret);

#endif /* LTN_CLI_CHECK_PRICE_H */
