/* SPDX-License-Identifier: Apache-2.0 */
#include "http/rate.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"

#define MAX_TENANT_BYTES 32
#define BURST_S          2
#define MAX_WAIT_MS      60000
#define SCALE            1000 /* levels are in thousandths */
#define SCAN_NS          LTN_NS_PER_S
#define MAX_CLEARED      512

/* One of the two limits of a tenant. */
struct level {
    int64_t milli; /* left; negative: overdrawn */
};

struct account {
    struct level requests, bytes;
    uint64_t last_ns;
    size_t n;
    uint8_t tenant[MAX_TENANT_BYTES];
};

struct ltn_rate {
    uint64_t requests_per_s, bytes_per_s;
    struct ltn_map accounts;
    struct account shared; /* of those for whom there is no room */
    uint64_t scanned_ns;
};

static int64_t full(uint64_t per_s)
{
    return (int64_t)(per_s * BURST_S * SCALE);
}

static void open_account(const struct ltn_rate *r, struct account *a, uint64_t now_ns)
{
    a->requests.milli = full(r->requests_per_s);
    a->bytes.milli = full(r->bytes_per_s);
    a->last_ns = now_ns;
}

struct ltn_rate *ltn_rate_new(uint64_t requests_per_s, uint64_t bytes_per_s, size_t max_tenants)
{
    struct ltn_rate *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return NULL;
    }
    /* Bounded so that no product below overflows. */
    r->requests_per_s = requests_per_s < (1ULL << 32) ? requests_per_s : 1ULL << 32;
    r->bytes_per_s = bytes_per_s < (1ULL << 36) ? bytes_per_s : 1ULL << 36;
    ltn_map_init(&r->accounts, max_tenants);
    open_account(r, &r->shared, 0);
    return r;
}

void ltn_rate_free(struct ltn_rate *r)
{
    if (r != NULL) {
        ltn_map_done(&r->accounts, free);
        free(r);
    }
}

static void refill_level(struct level *l, uint64_t per_s, uint64_t ms)
{
    int64_t top = full(per_s);
    l->milli += (int64_t)(ms * per_s); /* per_s tokens a second are per_s thousandths a ms */
    l->milli = l->milli < top ? l->milli : top;
}

static void refill(const struct ltn_rate *r, struct account *a, uint64_t now_ns)
{
    uint64_t ms = now_ns > a->last_ns ? (now_ns - a->last_ns) / LTN_NS_PER_MS : 0;
    if (ms == 0) {
        return;
    }
    a->last_ns += ms * LTN_NS_PER_MS;
    ms = ms < 3600000 ? ms : 3600000;
    refill_level(&a->requests, r->requests_per_s, ms);
    refill_level(&a->bytes, r->bytes_per_s, ms);
}

/* Nothing would be forgotten with it. */
static bool idle(const struct ltn_rate *r, struct account *a, uint64_t now_ns)
{
    refill(r, a, now_ns);
    return a->requests.milli == full(r->requests_per_s) && a->bytes.milli == full(r->bytes_per_s);
}

static void make_room(struct ltn_rate *r, uint64_t now_ns)
{
    if (r->scanned_ns != 0 && now_ns - r->scanned_ns < SCAN_NS) {
        return;
    }
    r->scanned_ns = now_ns;
    struct account *gone[MAX_CLEARED];
    struct account *a;
    size_t count = 0;
    size_t pos = 0;
    while (count < MAX_CLEARED && (a = ltn_map_next(&r->accounts, &pos)) != NULL) {
        if (idle(r, a, now_ns)) {
            gone[count++] = a;
        }
    }
    for (size_t i = 0; i < count; i++) {
        (void)ltn_map_del(&r->accounts, gone[i]->tenant, gone[i]->n);
        free(gone[i]);
    }
}

static struct account *account_of(struct ltn_rate *r, const void *tenant, size_t n, uint64_t now_ns)
{
    struct account *a = ltn_map_get(&r->accounts, tenant, n);
    if (a == NULL && n <= MAX_TENANT_BYTES) {
        if (r->accounts.len == r->accounts.max_entries) {
            make_room(r, now_ns);
        }
        a = r->accounts.len < r->accounts.max_entries ? calloc(1, sizeof(*a)) : NULL;
        if (a != NULL) {
            open_account(r, a, now_ns);
            memcpy(a->tenant, tenant, n);
            a->n = n;
            if (ltn_map_put(&r->accounts, tenant, n, a) != 0) {
                free(a);
                a = NULL;
            }
        }
    }
    a = a != NULL ? a : &r->shared;
    refill(r, a, now_ns);
    return a;
}

/* Milliseconds until the level has reached want. */
static uint64_t wait_ms(const struct level *l, int64_t want, uint64_t per_s)
{
    if (per_s == 0 || l->milli >= want) {
        return 0;
    }
    return ((uint64_t)(want - l->milli) + per_s - 1) / per_s;
}

bool ltn_rate_admit(struct ltn_rate *r, const void *tenant, size_t n, uint64_t now_ns,
                    uint32_t *ret_wait_ms)
{
    struct account *a = account_of(r, tenant, n, now_ns);
    uint64_t for_request = wait_ms(&a->requests, SCALE, r->requests_per_s);
    uint64_t for_bytes = wait_ms(&a->bytes, 0, r->bytes_per_s);
    uint64_t longest = for_request > for_bytes ? for_request : for_bytes;
    if (longest > 0) {
        *ret_wait_ms = (uint32_t)(longest < MAX_WAIT_MS ? longest : MAX_WAIT_MS);
        return false;
    }
    if (r->requests_per_s != 0) {
        a->requests.milli -= SCALE;
    }
    return true;
}

void ltn_rate_charge(struct ltn_rate *r, const void *tenant, size_t n, uint64_t bytes,
                     uint64_t now_ns)
{
    struct account *a = account_of(r, tenant, n, now_ns);
    if (r->bytes_per_s == 0) {
        return;
    }
    /* No deeper than a minute's worth, whatever came. */
    int64_t floor = -(int64_t)(r->bytes_per_s * (MAX_WAIT_MS / 1000) * SCALE);
    int64_t cost = (int64_t)(bytes < (1ULL << 40) ? bytes : 1ULL << 40) * SCALE;
    a->bytes.milli = a->bytes.milli - cost > floor ? a->bytes.milli - cost : floor;
}

size_t ltn_rate_tenants(const struct ltn_rate *r)
{
    return r->accounts.len;
}
