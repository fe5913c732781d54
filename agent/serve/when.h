/* SPDX-License-Identifier: Apache-2.0 */
/* Moments as people give them. Thread-safe. */
#ifndef LTN_SERVE_WHEN_H
#define LTN_SERVE_WHEN_H

#include <stdbool.h>
#include <stdint.h>

/* "5m" (that long before now), Unix time in ns, or RFC 3339 such as "2026-01-31T12:00:00Z",
 * "2026-01-31T12:00:00.250+01:00" or "2026-01-31" (midnight UTC). False when it is none of them. */
bool ltn_parse_when(const char *text, uint64_t now_unix_ns, uint64_t *ret_unix_ns);

#endif /* LTN_SERVE_WHEN_H */
