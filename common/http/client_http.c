/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "http/client.h"
#include "http/coding.h"
#include "http/curl_load.h"

#define DEFAULT_RESPONSE_BYTES (4UL * 1024 * 1024)
#define MAX_HEAD_BYTES         (64 * 1024)
#define MAX_REDIRECTS          5L
#define CA_CACHE_S             60L /* then a changed CA file is seen */
#define MAX_RETRY_AFTER_S      (24 * 3600)

struct ltn_http_client {
    CURL *curl;
    struct ltn_buf body;
    struct ltn_buf zipped;
    size_t head_bytes;
    bool too_large;
    char content_type[128];
};

struct ltn_http_client *ltn_http_client_new(void)
{
    struct ltn_http_client *c = ltn_curl_load() == 0 ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) {
        return NULL;
    }
    c->curl = curl_easy_init();
    if (c->curl == NULL) {
        free(c);
        return NULL;
    }
    ltn_buf_init(&c->body, 0);
    ltn_buf_init(&c->zipped, UINT_MAX);
    return c;
}

void ltn_http_client_free(struct ltn_http_client *c)
{
    if (c == NULL) {
        return;
    }
    curl_easy_cleanup(c->curl);
    ltn_buf_done(&c->body);
    ltn_buf_done(&c->zipped);
    free(c);
}

static size_t on_body(char *p, size_t size, size_t count, void *user)
{
    struct ltn_http_client *c = user;
    if (ltn_buf_append(&c->body, p, size * count) != 0) {
        c->too_large = ltn_buf_error(&c->body) == LTN_ERR_TOO_LARGE;
        return 0; /* ends the transfer */
    }
    return size * count;
}

static size_t on_head(char *p, size_t size, size_t count, void *user)
{
    struct ltn_http_client *c = user;
    (void)p;
    c->head_bytes += size * count;
    if (c->head_bytes > MAX_HEAD_BYTES) {
        c->too_large = true;
        return 0;
    }
    return size * count;
}

static int add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer == NULL) {
        return -ENOMEM;
    }
    *list = longer;
    return 0;
}

static int add_header_value(struct curl_slist **list, const char *name, const char *value)
{
    char *line = NULL;
    if (strpbrk(value, "\r\n") != NULL) {
        return -EINVAL;
    }
    if (asprintf(&line, "%s: %s", name, value) < 0) {
        return -ENOMEM;
    }
    int rc = add_header(list, line);
    free(line);
    return rc;
}

static int make_headers(const struct ltn_http_call *call, struct curl_slist **list)
{
    int rc = add_header(list, "Expect:"); /* no waiting for 100 Continue */
    if (rc == 0 && call->body != NULL) {
        rc = call->content_type != NULL ? add_header_value(list, "Content-Type", call->content_type)
                                        : add_header(list, "Content-Type:");
    }
    if (rc == 0 && (call->gzip || call->zstd) && call->body != NULL) {
        rc = add_header(list, call->zstd ? "Content-Encoding: zstd" : "Content-Encoding: gzip");
    }
    for (size_t i = 0; rc == 0 && call->headers != NULL && call->headers[i] != NULL; i++) {
        rc = strpbrk(call->headers[i], "\r\n") != NULL ? -EINVAL
                                                       : add_header(list, call->headers[i]);
    }
    return rc;
}

static int set_body(struct ltn_http_client *c, const struct ltn_http_call *call)
{
    const void *body = call->body;
    size_t len = call->body_len;
    if (body == NULL) {
        return 0;
    }
    if (call->gzip || call->zstd) {
        ltn_buf_reset(&c->zipped);
        int rc = call->zstd ? ltn_zstd(body, len, &c->zipped) : ltn_gzip(body, len, &c->zipped);
        if (rc != 0) {
            return rc;
        }
        body = ltn_buf_str(&c->zipped);
        len = c->zipped.len;
    }
    curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    return 0;
}

/* Told of progress several times a second, also while there is none; not 0 ends the transfer. */
static int look_at_cut(void *user, curl_off_t to_get, curl_off_t got, curl_off_t to_send,
                       curl_off_t sent)
{
    (void)to_get, (void)got, (void)to_send, (void)sent;
    uint64_t cut_ns = atomic_load((_Atomic uint64_t *)user);
    return cut_ns != 0 && ltn_now_mono_ns() >= cut_ns;
}

static void set_options(struct ltn_http_client *c, const struct ltn_http_call *call,
                        struct curl_slist *headers, char *error)
{
    CURL *h = c->curl;
    uint64_t ms = (call->timeout_ns + LTN_NS_PER_MS - 1) / LTN_NS_PER_MS;
    curl_easy_setopt(h, CURLOPT_URL, call->url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, ms < LONG_MAX ? (long)ms : LONG_MAX);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(h, CURLOPT_USERAGENT,
                     call->user_agent != NULL ? call->user_agent : "lanterne/" LTN_VERSION);
    if (call->method != NULL) {
        if (strcmp(call->method, "HEAD") == 0) {
            curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
        } else {
            curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, call->method);
        }
    }
    if (call->cut_ns != NULL) {
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, look_at_cut);
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, call->cut_ns);
    }
    if (call->bearer_token != NULL) {
        curl_easy_setopt(h, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, call->bearer_token);
    }
    if (call->ca_file != NULL) {
        curl_easy_setopt(h, CURLOPT_CAINFO, call->ca_file);
    }
    if (call->cert_file != NULL) {
        curl_easy_setopt(h, CURLOPT_SSLCERT, call->cert_file);
        curl_easy_setopt(h, CURLOPT_SSLKEY,
                         call->key_file != NULL ? call->key_file : call->cert_file);
        curl_easy_setopt(h, CURLOPT_KEYPASSWD, ""); /* never a question at the terminal */
    }
    curl_easy_setopt(h, CURLOPT_CA_CACHE_TIMEOUT, CA_CACHE_S);
    if (call->insecure) {
        curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (call->follow && call->body == NULL) {
        curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
        curl_easy_setopt(h, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    }
}

static int status_rc(int status)
{
    switch (status) {
    case 400:
        return LTN_ERR_MALFORMED;
    case 401:
        return LTN_ERR_UNAUTHENTICATED;
    case 403:
        return LTN_ERR_FORBIDDEN;
    case 404:
        return LTN_ERR_NOT_FOUND;
    case 405:
        return LTN_ERR_METHOD;
    case 413:
        return LTN_ERR_TOO_LARGE;
    case 415:
        return LTN_ERR_UNSUPPORTED;
    case 429:
        return LTN_ERR_QUOTA;
    case 502:
    case 503:
    case 504:
        return LTN_ERR_UNAVAILABLE;
    default:
        return status >= 200 && status < 300 ? 0 : LTN_ERR_INTERNAL;
    }
}

static int transfer_rc(const struct ltn_http_client *c, CURLcode code)
{
    if (c->too_large) {
        return LTN_ERR_TOO_LARGE;
    }
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_ABORTED_BY_CALLBACK:
        return LTN_ERR_TIMEOUT;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    default:
        return LTN_ERR_UNAVAILABLE;
    }
}

static int read_answer(struct ltn_http_client *c, struct ltn_http_result *ret)
{
    long status = 0;
    curl_off_t retry_after_s = 0;
    const char *type = NULL;
    (void)curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(c->curl, CURLINFO_CONTENT_TYPE, &type);
    (void)curl_easy_getinfo(c->curl, CURLINFO_RETRY_AFTER, &retry_after_s);
    ret->status = (int)status;
    (void)snprintf(c->content_type, sizeof(c->content_type), "%s", type != NULL ? type : "");
    ret->body = (const uint8_t *)ltn_buf_str(&c->body);
    ret->body_len = c->body.len;
    if (retry_after_s > 0) {
        retry_after_s = retry_after_s < MAX_RETRY_AFTER_S ? retry_after_s : MAX_RETRY_AFTER_S;
        ret->retry_after_ns = (uint64_t)retry_after_s * LTN_NS_PER_S;
    }
    ret->retry = status == 429 || status == 502 || status == 503 || status == 504;
    return status_rc(ret->status);
}

int ltn_http_client_call(struct ltn_http_client *c, const struct ltn_http_call *call,
                         struct ltn_http_result *ret)
{
    char error[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    *ret = (struct ltn_http_result){.content_type = c->content_type, .body = (const uint8_t *)""};
    c->content_type[0] = '\0';
    c->too_large = false;
    c->head_bytes = 0;
    size_t max = call->max_response_bytes != 0 ? call->max_response_bytes : DEFAULT_RESPONSE_BYTES;
    ltn_buf_done(&c->body);
    ltn_buf_init(&c->body, max);
    curl_easy_reset(c->curl); /* options only: connections stay */
    int rc = make_headers(call, &headers);
    if (rc == 0) {
        rc = set_body(c, call);
    }
    if (rc == 0) {
        set_options(c, call, headers, error);
        CURLcode code = curl_easy_perform(c->curl);
        if (code == CURLE_OK) {
            rc = read_answer(c, ret);
        } else {
            rc = transfer_rc(c, code);
            ret->retry = rc == LTN_ERR_TIMEOUT || rc == LTN_ERR_UNAVAILABLE;
            (void)snprintf(ret->error, sizeof(ret->error), "%s",
                           error[0] != '\0' ? error : curl_easy_strerror(code));
        }
    }
    curl_slist_free_all(headers);
    return rc;
}
