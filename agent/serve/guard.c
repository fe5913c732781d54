/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/guard.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Cuts "host:port" or "[v6]:port" to the host. False when it is malformed. */
static bool cut_host(const char *text, char out[256])
{
    size_t n;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
            return false;
        }
        text++;
        n = (size_t)(end - text);
    } else {
        n = strcspn(text, ":");
        if (text[n] == ':' && strchr(text + n + 1, ':') != NULL) {
            return false;
        }
    }
    if (n == 0 || n >= 256) {
        return false;
    }
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

static bool is_local_name(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0) {
        return true;
    }
    if (inet_pton(AF_INET, host, &v4) == 1) {
        return (ntohl(v4.s_addr) >> 24) == 127;
    }
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool ltn_guard_is_loopback(const char *listen_address)
{
    char host[256];
    return cut_host(listen_address, host) && is_local_name(host);
}

bool ltn_guard_host_is_local(const char *host)
{
    return ltn_guard_is_loopback(host);
}

static const char *origin_authority(const char *origin)
{
    if (strncmp(origin, "http://", 7) == 0) {
        return origin + 7;
    }
    return strncmp(origin, "https://", 8) == 0 ? origin + 8 : NULL;
}

bool ltn_guard_origin_is_local(const char *origin)
{
    const char *authority = origin_authority(origin);
    return authority != NULL && ltn_guard_is_loopback(authority);
}

bool ltn_guard_origin_is_host(const char *origin, const char *host)
{
    const char *authority = origin_authority(origin);
    return authority != NULL && strcasecmp(authority, host) == 0;
}
