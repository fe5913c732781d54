/* SPDX-License-Identifier: Apache-2.0 */
/* The page and its files, out of the program itself. */
#include <string.h>

#include "base/err.h"
#include "serve/internal.h"
#include "web/web.h"

/* Nothing but what this server serves, no inline script or style, no framing. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static const struct ltn_web_asset *find(const char *path)
{
    for (size_t i = 0; i < ltn_web_asset_count; i++)
        if (strcmp(ltn_web_assets[i].path, path) == 0)
            return &ltn_web_assets[i];
    return NULL;
}

/* True when one of the tags of If-None-Match is this one. Weak comparison: W/ does not count. */
static bool tag_matches(const char *given, const char *etag)
{
    return given != NULL && (strcmp(given, "*") == 0 || strstr(given, etag + 2) != NULL);
}

void ltn_serve_on_page(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    const struct ltn_web_asset *a = find(ltn_http_path(req));
    if (a == NULL) {
        ltn_http_reply_error(req, LTN_ERR_NOT_FOUND, "no such file", 0);
        return;
    }
    const struct ltn_http_field fields[] = {
        {"etag", a->etag},
        {"cache-control", "no-cache"},
        {"content-security-policy", POLICY},
        {"x-content-type-options", "nosniff"},
        {"x-frame-options", "DENY"},
        {"referrer-policy", "no-referrer"},
        {"cross-origin-opener-policy", "same-origin"},
        {"cross-origin-resource-policy", "same-origin"},
        {"vary", "Accept-Encoding"},
    };
    struct ltn_http_response r = {
        .status = 304, .fields = fields, .field_count = LTN_ARRAY_SIZE(fields)};
    if (!tag_matches(ltn_http_header(req, "if-none-match"), a->etag)) {
        r.status = 200;
        r.content_type = a->content_type;
        r.body = (void *)(uintptr_t)a->data; /* copied, not changed */
        r.body_len = a->len;
    }
    ltn_http_reply(req, &r);
}
