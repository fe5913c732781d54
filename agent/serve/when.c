/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/when.h"

#include <string.h>
#include <time.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/text.h"

/* A number beyond this is a moment in ns; below, a duration in s. */
#define MOMENT_MIN_NS 1000000000000ULL

/* Digits of a fraction behind '.', as ns. */
static const char *take_fraction(const char *s, uint64_t *ret_ns)
{
    uint64_t unit = 100 * 1000 * 1000;
    *ret_ns = 0;
    for (; *s >= '0' && *s <= '9'; s++) {
        *ret_ns += (uint64_t)(*s - '0') * unit;
        unit /= 10;
    }
    return s;
}

/* "Z" or "+01:00" as seconds east of UTC. */
static bool take_zone(const char *s, int64_t *ret_s)
{
    *ret_s = 0;
    if (strcmp(s, "Z") == 0 || strcmp(s, "z") == 0 || *s == '\0') {
        return true;
    }
    if ((s[0] != '+' && s[0] != '-') || strlen(s) != 6 || s[3] != ':') {
        return false;
    }
    for (int i = 1; i < 6; i++) {
        if (i != 3 && (s[i] < '0' || s[i] > '9')) {
            return false;
        }
    }
    int64_t east = ((s[1] - '0') * 10 + s[2] - '0') * 3600 + ((s[4] - '0') * 10 + s[5] - '0') * 60;
    *ret_s = s[0] == '-' ? -east : east;
    return true;
}

static bool parse_rfc3339(const char *text, uint64_t *ret_ns)
{
    struct tm tm = {0};
    uint64_t fraction_ns = 0;
    int64_t east_s = 0;
    const char *rest = strptime(text, "%Y-%m-%d", &tm);
    if (rest == NULL) {
        return false;
    }
    if (*rest == 'T' || *rest == 't' || *rest == ' ') {
        rest = strptime(rest + 1, "%H:%M:%S", &tm);
        if (rest == NULL) {
            return false;
        }
        if (*rest == '.') {
            rest = take_fraction(rest + 1, &fraction_ns);
        }
    }
    if (!take_zone(rest, &east_s)) {
        return false;
    }
    int64_t seconds = (int64_t)timegm(&tm) - east_s;
    if (seconds < 0 || seconds > INT64_MAX / (int64_t)LTN_NS_PER_S - 1) {
        return false;
    }
    *ret_ns = (uint64_t)seconds * LTN_NS_PER_S + fraction_ns;
    return true;
}

bool ltn_parse_when(const char *text, uint64_t now_unix_ns, uint64_t *ret_unix_ns)
{
    uint64_t v;
    if (ltn_parse_u64(text, &v) && v >= MOMENT_MIN_NS) {
        *ret_unix_ns = v;
        return true;
    }
    if (ltn_parse_duration_ns(text, &v)) {
        *ret_unix_ns = now_unix_ns > v ? now_unix_ns - v : 0;
        return true;
    }
    return parse_rfc3339(text, ret_unix_ns);
}
