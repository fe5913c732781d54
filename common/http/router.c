/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/server-internals.h"

static const struct {
    const char *name;
    unsigned bit;
} methods[] = {
    {"GET", LTN_HTTP_GET},     {"HEAD", LTN_HTTP_GET},      {"POST", LTN_HTTP_POST},
    {"PUT", LTN_HTTP_PUT},     {"DELETE", LTN_HTTP_DELETE}, {"OPTIONS", LTN_HTTP_OPTIONS},
    {"PATCH", LTN_HTTP_PATCH},
};

unsigned ltn_method_bit(const char *method, bool *ret_head)
{
    *ret_head = strcmp(method, "HEAD") == 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(methods); i++) {
        if (strcmp(method, methods[i].name) == 0) {
            return methods[i].bit;
        }
    }
    return 0;
}

int ltn_router_add(struct router *r, const struct ltn_http_route *route)
{
    bool streams = route->stream != NULL && (route->flags & LTN_ROUTE_GRPC) != 0;
    if (route->path == NULL || route->path[0] != '/' || (route->handle == NULL && !streams) ||
        (streams && route->rested_ns != NULL)) {
        return -EINVAL;
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct ltn_http_route *o = &r->routes[i].r;
        bool same_kind = ((o->flags ^ route->flags) & (LTN_ROUTE_PREFIX | LTN_ROUTE_GRPC)) == 0;
        bool overlap = (route->flags & LTN_ROUTE_GRPC) != 0 || (o->methods & route->methods) != 0;
        if (same_kind && overlap && strcmp(o->path, route->path) == 0) {
            return -EEXIST;
        }
    }
    if (r->count == LTN_MAX_ROUTES) {
        return -ENOMEM;
    }
    struct route *n = &r->routes[r->count];
    *n = (struct route){.r = *route, .path_len = strlen(route->path)};
    n->path = strdup(route->path);
    n->content_types = route->content_types != NULL ? strdup(route->content_types) : NULL;
    if (n->path == NULL || (route->content_types != NULL && n->content_types == NULL)) {
        free(n->path);
        free(n->content_types);
        return -ENOMEM;
    }
    n->r.path = n->path;
    n->r.content_types = n->content_types;
    r->count++;
    return 0;
}

void ltn_router_done(struct router *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->routes[i].path);
        free(r->routes[i].content_types);
    }
    r->count = 0;
}

/* How well a route fits the path: 0 not, else longer is better and exact is best. */
static size_t fit(const struct route *route, const char *path, size_t path_len)
{
    if (path_len == route->path_len && memcmp(path, route->path, path_len) == 0) {
        return SIZE_MAX;
    }
    if ((route->r.flags & LTN_ROUTE_PREFIX) == 0 || path_len < route->path_len ||
        memcmp(path, route->path, route->path_len) != 0) {
        return 0;
    }
    return route->path_len;
}

static void list_methods(const struct router *r, const char *path, size_t best, char *allow,
                         size_t size)
{
    size_t path_len = strlen(path);
    unsigned bits = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct route *route = &r->routes[i];
        if ((route->r.flags & LTN_ROUTE_GRPC) == 0 && fit(route, path, path_len) == best) {
            bits |= route->r.methods;
        }
    }
    size_t len = 0;
    allow[0] = '\0';
    for (size_t i = 0; i < LTN_ARRAY_SIZE(methods); i++) {
        size_t n = strlen(methods[i].name);
        if ((bits & methods[i].bit) == 0 || len + n + 3 > size) {
            continue;
        }
        if (len > 0) {
            memcpy(allow + len, ", ", 2);
            len += 2;
        }
        memcpy(allow + len, methods[i].name, n + 1);
        len += n;
    }
}

enum route_match ltn_router_find(const struct router *r, const char *path, unsigned method,
                                 bool grpc, const struct route **ret, char *allow,
                                 size_t allow_size)
{
    size_t path_len = strlen(path);
    const struct route *found = NULL;
    size_t best = 0;
    size_t best_any = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct route *route = &r->routes[i];
        if (((route->r.flags & LTN_ROUTE_GRPC) != 0) != grpc) {
            continue;
        }
        size_t score = fit(route, path, path_len);
        best_any = score > best_any ? score : best_any;
        if (score > best && (grpc || (route->r.methods & method) != 0)) {
            best = score;
            found = route;
        }
    }
    /* A route that fits better but lacks the method hides the shorter ones. */
    if (found != NULL && best == best_any) {
        *ret = found;
        return ROUTE_FOUND;
    }
    if (best_any == 0) {
        return ROUTE_NO_PATH;
    }
    list_methods(r, path, best_any, allow, allow_size);
    return ROUTE_NO_METHOD;
}

bool ltn_route_accepts(const struct route *r, const char *content_type)
{
    return r->content_types == NULL || ltn_list_has(r->content_types, content_type);
}
