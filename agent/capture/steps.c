/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/steps.h"

#include <string.h>

/* A period counts when the newest tokens repeat for this many periods and at least this many
 * tokens. */
#define REPEATS    2
#define MIN_TOKENS 12

void ltn_steps_init(struct ltn_steps *s)
{
    memset(s, 0, sizeof(*s));
}

static void add(struct ltn_steps *s, uint64_t token, uint32_t collectives)
{
    s->tokens[s->seen % LTN_STEPS_TOKENS] = token;
    s->collectives[s->seen % LTN_STEPS_TOKENS] = collectives;
    s->seen++;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
    return h ^ (h >> 32);
}

void ltn_steps_add_collective(struct ltn_steps *s, uint64_t comm_id, uint32_t op, uint64_t count,
                              uint32_t data_type)
{
    uint64_t token = mix(mix(mix(comm_id, op), count), data_type);
    add(s, token == LTN_STEPS_WAIT ? LTN_STEPS_WAIT + 1 : token, 1);
}

void ltn_steps_add_graph(struct ltn_steps *s, uint64_t signature, uint64_t collectives)
{
    uint64_t token = mix(mix(0, signature), collectives);
    add(s, token == LTN_STEPS_WAIT ? LTN_STEPS_WAIT + 1 : token,
        collectives < UINT32_MAX ? (uint32_t)collectives : UINT32_MAX);
}

void ltn_steps_add_wait(struct ltn_steps *s)
{
    add(s, LTN_STEPS_WAIT, 0);
}

static uint32_t collectives_at(const struct ltn_steps *s, uint64_t back)
{
    return s->collectives[(s->seen - 1 - back) % LTN_STEPS_TOKENS];
}

/* The token `back` places before the newest. */
static uint64_t token_at(const struct ltn_steps *s, uint64_t back)
{
    return s->tokens[(s->seen - 1 - back) % LTN_STEPS_TOKENS];
}

static bool repeats(const struct ltn_steps *s, uint32_t lag, uint64_t have)
{
    uint64_t need = (uint64_t)lag * REPEATS;
    if (need < MIN_TOKENS) {
        need = MIN_TOKENS;
    }
    if (need + lag > have) {
        return false;
    }
    for (uint64_t i = 0; i < need; i++) {
        if (token_at(s, i) != token_at(s, i + lag)) {
            return false;
        }
    }
    return true;
}

bool ltn_steps_find(struct ltn_steps *s)
{
    uint64_t have = s->seen < LTN_STEPS_TOKENS ? s->seen : LTN_STEPS_TOKENS;
    for (uint32_t lag = 1; (uint64_t)lag * (REPEATS + 1) <= have; lag++) {
        if (!repeats(s, lag, have)) {
            continue;
        }
        uint32_t waits = 0;
        uint64_t collectives = 0;
        for (uint32_t i = 0; i < lag; i++) {
            waits += token_at(s, i) == LTN_STEPS_WAIT;
            collectives += collectives_at(s, i);
        }
        s->period = lag;
        s->waits_per_step = waits;
        s->collectives_per_step = collectives < UINT32_MAX ? (uint32_t)collectives : UINT32_MAX;
        break;
    }
    return s->period != 0;
}
