/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rate limits by tenant: requests and body bytes a second, each with a burst of two seconds' worth.
 * Bytes are paid for when they have come, so one body may overdraw the account; the tenant then
 * waits. One thread. Used inside the room.
 */
#ifndef LTN_HTTP_RATE_H
#define LTN_HTTP_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_rate;

/* Limits of 0 are none. At most max_tenants are told apart at a time; idle ones make room, and
 * when none is idle the others share one account. NULL when memory is out. */
struct ltn_rate *ltn_rate_new(uint64_t requests_per_s, uint64_t bytes_per_s,
                              size_t max_tenants) ltn_must_check;
void ltn_rate_free(struct ltn_rate *r); /* NULL-safe */

/* One request of the tenant named by n bytes. True: it may come. False: *ret_wait_ms is how long
 * until one may. */
bool ltn_rate_admit(struct ltn_rate *r, const void *tenant, size_t n, uint64_t now_ns,
                    uint32_t *ret_wait_ms);

/* Takes bytes from the tenant's account, into the red if need be. */
void ltn_rate_charge(struct ltn_rate *r, const void *tenant, size_t n, uint64_t bytes,
                     uint64_t now_ns);

/* Tenants known now. */
size_t ltn_rate_tenants(const struct ltn_rate *r);

#endif /* LTN_HTTP_RATE_H */
