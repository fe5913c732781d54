/* SPDX-License-Identifier: Apache-2.0 */
/* Which exposition format a scraper wants, by its Accept header. Thread-safe. */
#ifndef LTN_PROM_ACCEPT_H
#define LTN_PROM_ACCEPT_H

#include "prom/expo.h"

struct ltn_prom_choice {
    enum ltn_prom_format format;
    char content_type[112]; /* of the answer, with the version and the escaping that were asked */
};

/* The acceptable item of the highest q, of several the first: OpenMetrics 1.0.0 or 0.0.1 (bare:
 * 1.0.0), or text 0.0.4 or 1.0.0 (bare, any version of text and wildcards: 0.0.4). Text 0.0.4 also
 * when accept is NULL, empty, malformed or names nothing known. Items beyond the 64th are not
 * looked at. */
void ltn_prom_choose(const char *accept, struct ltn_prom_choice *ret);

/* The format alone. */
enum ltn_prom_format ltn_prom_negotiate(const char *accept);

#endif /* LTN_PROM_ACCEPT_H */
