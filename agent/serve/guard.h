/* SPDX-License-Identifier: Apache-2.0 */
/* Who may talk to a listener: pure decisions on texts from the network. Thread-safe. */
#ifndef LTN_SERVE_GUARD_H
#define LTN_SERVE_GUARD_H

#include <stdbool.h>

/* True when an address to listen on ("127.0.0.1:8421", "[::1]:8421", "localhost:0") is reachable
 * from this machine only. Any other name counts as reachable from elsewhere. */
bool ltn_guard_is_loopback(const char *listen_address);

/* True when a Host header names this machine by a loopback name. */
bool ltn_guard_host_is_local(const char *host);

/* True when an Origin header is a page of this machine itself: "http://localhost:8421". */
bool ltn_guard_origin_is_local(const char *origin);

/* True when an Origin header is of the host that was asked. */
bool ltn_guard_origin_is_host(const char *origin, const char *host);

#endif /* LTN_SERVE_GUARD_H */
