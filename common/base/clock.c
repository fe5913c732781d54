/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#include "base/attr.h"

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts = {0};
    (void)clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * LTN_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t ltn_now_mono_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t ltn_now_unix_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t ltn_cpu_self_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t ltn_mono_to_unix_ns(uint64_t mono_ns)
{
    return ltn_now_unix_ns() - ltn_now_mono_ns() + mono_ns;
}

void ltn_format_rfc3339(uint64_t unix_ns, char out[LTN_RFC3339_BYTES])
{
    time_t s = (time_t)(unix_ns / LTN_NS_PER_S);
    struct tm tm;
    char head[24];
    if (gmtime_r(&s, &tm) == NULL || strftime(head, sizeof(head), "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        head[0] = '\0';
    }
    unsigned ms = (unsigned)(unix_ns % LTN_NS_PER_S / LTN_NS_PER_MS);
    (void)snprintf(out, LTN_RFC3339_BYTES, "%s.%03uZ", head, ms);
}
