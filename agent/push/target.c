/* SPDX-License-Identifier: Apache-2.0 */
#include "push/target.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "otlp/model.h"
#include "otlp/response.h"

/* Connections are made anew after this, so that a scaled or moved collector is found. */
#define CONNECTION_AGE_NS (300 * LTN_NS_PER_S)

/* ---- address ---- */

static const char *after_scheme(const char *endpoint, const char *scheme)
{
    size_t n = strlen(scheme);
    return strncasecmp(endpoint, scheme, n) == 0 ? endpoint + n : NULL;
}

static bool ends_in_port(const char *endpoint, const char *port)
{
    const char *host = strstr(endpoint, "://");
    host = host != NULL ? host + 3 : endpoint;
    size_t n = strcspn(host, "/");
    size_t m = strlen(port);
    return n > m && strncmp(host + n - m, port, m) == 0;
}

bool ltn_push_over_grpc(const struct ltn_push_target *t)
{
    if (t->protocol != LTN_PUSH_AUTO) {
        return t->protocol == LTN_PUSH_GRPC;
    }
    if (ends_in_port(t->endpoint, ":4318")) {
        return false;
    }
    bool https = after_scheme(t->endpoint, "https://") != NULL;
    return (!t->from_otel && !https) || ends_in_port(t->endpoint, ":4317");
}

static int grpc_address(struct ltn_push_sender *s, const struct ltn_push_target *t,
                        struct ltn_errinfo *info)
{
    const char *host = after_scheme(t->endpoint, "http://");
    const char *port = host != NULL ? ":80" : ":4317";
    const char *https = after_scheme(t->endpoint, "https://");
    if (https != NULL) {
        host = https;
        port = ":443";
    }
    /* Without a scheme the variables mean TLS unless told otherwise; the option means cleartext. */
    s->secure = https != NULL || (host == NULL && t->from_otel && !t->insecure);
    if (host == NULL && strstr(t->endpoint, "://") != NULL) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "\"%.100s\" is no http:// or https:// address",
                               t->endpoint);
    }
    host = host != NULL ? host : t->endpoint;
    size_t n = strcspn(host, "/");
    const char *bracket = memchr(host, ']', n);
    const char *from = bracket != NULL ? bracket : host;
    bool has_port = memchr(from, ':', n - (size_t)(from - host)) != NULL;
    if (n == 0 || strpbrk(host, " \t\r\n@?#") != NULL) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "\"%.100s\" is no address of a collector",
                               t->endpoint);
    }
    (void)snprintf(s->address, sizeof(s->address), "%.*s%s", (int)n, host, has_port ? "" : port);
    return 0;
}

static int http_address(struct ltn_push_sender *s, const struct ltn_push_target *t,
                        const char *path, struct ltn_errinfo *info)
{
    bool has_scheme = strstr(t->endpoint, "://") != NULL;
    bool known = after_scheme(t->endpoint, "http://") != NULL ||
                 after_scheme(t->endpoint, "https://") != NULL;
    if ((has_scheme && !known) || strpbrk(t->endpoint, " \t\r\n") != NULL) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "\"%.100s\" is no http:// or https:// address",
                               t->endpoint);
    }
    size_t n = strlen(t->endpoint);
    while (!t->as_is && n > 0 && t->endpoint[n - 1] == '/') {
        n--;
    }
    int len = snprintf(s->address, sizeof(s->address), "%s%.*s%s", has_scheme ? "" : "http://",
                       (int)n, t->endpoint, t->as_is ? "" : path);
    return len < (int)sizeof(s->address)
               ? 0
               : ltn_errinfo_set(info, LTN_ERR_CONFIG, "the collector's address is too long");
}

/* ---- headers ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool decode_value(const char *v, size_t n, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = v[i];
        if (c == '%' && i + 2 < n && hex(v[i + 1]) >= 0 && hex(v[i + 2]) >= 0) {
            c = (char)(hex(v[i + 1]) * 16 + hex(v[i + 2]));
            i += 2;
        }
        if ((unsigned char)c < 0x20 || c == 0x7f || len + 1 >= size) {
            return false;
        }
        out[len++] = c;
    }
    out[len] = '\0';
    return true;
}

static bool copy_name(const char *name, size_t n, char *out, size_t size)
{
    if (n == 0 || n >= size) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        /* Tokens of RFC 9110; no control characters, separators or pseudo headers. */
        if (!isalnum((unsigned char)name[i]) && strchr("!#$%&'*+-.^_`|~", name[i]) == NULL) {
            return false;
        }
        out[i] = (char)tolower((unsigned char)name[i]);
    }
    out[n] = '\0';
    return true;
}

static void trim(const char **s, size_t *n)
{
    while (*n > 0 && (**s == ' ' || **s == '\t')) {
        (*s)++;
        (*n)--;
    }
    while (*n > 0 && ((*s)[*n - 1] == ' ' || (*s)[*n - 1] == '\t')) {
        (*n)--;
    }
}

static bool parse_headers(struct ltn_push_sender *s, const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        const char *equals = memchr(text, '=', n);
        const char *name = text;
        if (equals != NULL) {
            size_t name_n = (size_t)(equals - text);
            const char *value = equals + 1;
            size_t value_n = n - name_n - 1;
            struct ltn_push_header *h = &s->headers[s->header_count];
            trim(&name, &name_n);
            trim(&value, &value_n);
            if (s->header_count == LTN_PUSH_MAX_HEADERS ||
                !copy_name(name, name_n, h->name, sizeof(h->name)) ||
                !decode_value(value, value_n, h->value, sizeof(h->value))) {
                return false;
            }
            s->header_count++;
        } else {
            size_t rest = n;
            trim(&name, &rest);
            if (rest > 0) {
                return false;
            }
        }
        text += n;
        text += *text == ',';
    }
    return true;
}

/* ---- life ---- */

#define USER_AGENT "lanterne/" LTN_VERSION " OTel-OTLP-Exporter-C/" LTN_VERSION

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int make_grpc_client(struct ltn_push_sender *s, const struct ltn_push_target *t,
                            struct ltn_errinfo *info)
{
    const struct ltn_tls_client_conf tls = {.ca_file = or_null(t->ca_file),
                                            .cert_file = or_null(t->cert_file),
                                            .key_file = or_null(t->key_file)};
    if (s->secure) {
        int rc = ltn_tls_client_new(&tls, &s->tls, info);
        if (rc != 0) {
            return rc;
        }
    }
    const struct ltn_grpc_client_conf conf = {.target = s->address,
                                              .gzip = s->gzip,
                                              .zstd = s->zstd,
                                              .user_agent = USER_AGENT,
                                              .tls = s->tls,
                                              .server_name = or_null(t->server_name),
                                              .authority = or_null(t->server_name),
                                              .max_age_ns = CONNECTION_AGE_NS};
    int rc = ltn_grpc_client_new(&conf, &s->grpc_client);
    return rc < 0 ? ltn_errinfo_set(info, rc, "%.100s: %s", s->address, ltn_err_str(rc)) : 0;
}

static int make_client(struct ltn_push_sender *s, const struct ltn_push_target *t,
                       struct ltn_errinfo *info)
{
    if (s->grpc) {
        return make_grpc_client(s, t, info);
    }
    if (t->server_name[0] != '\0') {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "another server name is for gRPC only, %.100s is reached by HTTP",
                               s->address);
    }
    s->http_client = ltn_http_client_new();
    return s->http_client != NULL ? 0 : ltn_errinfo_set(info, -ENOMEM, "out of memory");
}

int ltn_push_sender_init(struct ltn_push_sender *s, const struct ltn_push_target *t,
                         enum ltn_record_signal signal, struct ltn_errinfo *info)
{
    bool metrics = signal == LTN_RECORD_METRICS;
    *s = (struct ltn_push_sender){.enabled = t->endpoint[0] != '\0',
                                  .timeout_ns = t->timeout_ns,
                                  .gzip = t->gzip,
                                  .zstd = t->zstd,
                                  .path = metrics ? LTN_OTLP_GRPC_METRICS : LTN_OTLP_GRPC_LOGS};
    if (!s->enabled) {
        return 0;
    }
    s->grpc = ltn_push_over_grpc(t);
    (void)ltn_copy_str(s->ca_file, sizeof(s->ca_file), t->ca_file);
    (void)ltn_copy_str(s->cert_file, sizeof(s->cert_file), t->cert_file);
    (void)ltn_copy_str(s->key_file, sizeof(s->key_file), t->key_file);
    int rc = s->grpc
                 ? grpc_address(s, t, info)
                 : http_address(s, t, metrics ? LTN_OTLP_HTTP_METRICS : LTN_OTLP_HTTP_LOGS, info);
    if (rc < 0) {
        return rc;
    }
    if (!parse_headers(s, t->headers)) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "the headers for the collector are malformed");
    }
    return make_client(s, t, info);
}

void ltn_push_sender_done(struct ltn_push_sender *s)
{
    ltn_grpc_client_free(s->grpc_client);
    ltn_tls_client_free(s->tls);
    ltn_http_client_free(s->http_client);
    *s = (struct ltn_push_sender){0};
}

/* ---- sending ---- */

static void say(struct ltn_push_answer *a, const char *text)
{
    ltn_text_clean(a->message, sizeof(a->message), text, strlen(text));
}

static void read_response(struct ltn_push_answer *a, const void *body, size_t n)
{
    struct ltn_otlp_str message = {0};
    uint64_t rejected = 0;
    /* An answer that cannot be read is still an answer with success. */
    if (n > 0 && ltn_otlp_response_read(body, n, &rejected, &message) == 0) {
        a->rejected_points = rejected;
        if (message.n > 0) {
            ltn_text_clean(a->message, sizeof(a->message), message.p, message.n);
        }
    }
}

static void send_grpc(struct ltn_push_sender *s, const char *token, const void *bytes, size_t n,
                      struct ltn_push_answer *ret)
{
    struct ltn_grpc_field fields[LTN_PUSH_MAX_HEADERS + 1];
    char bearer[4096 + 8];
    size_t count = 0;
    for (size_t i = 0; i < s->header_count; i++) {
        fields[count++] =
            (struct ltn_grpc_field){.name = s->headers[i].name, .value = s->headers[i].value};
    }
    if (token[0] != '\0') {
        (void)snprintf(bearer, sizeof(bearer), "Bearer %s", token);
        fields[count++] = (struct ltn_grpc_field){.name = "authorization", .value = bearer};
    }
    struct ltn_grpc_call call = {.path = s->path,
                                 .body = bytes,
                                 .body_len = n,
                                 .timeout_ns = s->timeout_ns,
                                 .cut_ns = s->cut_ns,
                                 .metadata = fields,
                                 .metadata_count = count};
    struct ltn_grpc_result result;
    int rc = ltn_grpc_client_call(s->grpc_client, &call, &result);
    if (rc == 0) {
        const char *verdict = ltn_grpc_client_metadata(s->grpc_client, "lanterne-verdict");
        ret->outcome = LTN_PUSH_SENT;
        read_response(ret, result.body, result.body_len);
        if (verdict != NULL) {
            ltn_text_clean(ret->verdict, sizeof(ret->verdict), verdict, strlen(verdict));
        }
        return;
    }
    /* Wrong credentials say nothing about the data: it waits until they are right. */
    bool credentials = result.status == 16 || result.status == 7;
    ret->wrong_credentials = credentials;
    ret->outcome = result.retry || credentials || rc == -ENOMEM ? LTN_PUSH_RETRY : LTN_PUSH_REFUSED;
    ret->retry_after_ns = result.retry_after_ns;
    say(ret, result.message);
}

static void send_http(struct ltn_push_sender *s, const char *token, const void *bytes, size_t n,
                      struct ltn_push_answer *ret)
{
    char lines[LTN_PUSH_MAX_HEADERS][sizeof(s->headers[0].name) + sizeof(s->headers[0].value) + 4];
    const char *headers[LTN_PUSH_MAX_HEADERS + 1] = {NULL};
    for (size_t i = 0; i < s->header_count; i++) {
        (void)snprintf(lines[i], sizeof(lines[i]), "%s: %s", s->headers[i].name,
                       s->headers[i].value);
        headers[i] = lines[i];
    }
    struct ltn_http_call call = {.url = s->address,
                                 .body = bytes,
                                 .body_len = n,
                                 .content_type = "application/x-protobuf",
                                 .bearer_token = token[0] != '\0' ? token : NULL,
                                 .headers = headers,
                                 .timeout_ns = s->timeout_ns,
                                 .cut_ns = s->cut_ns,
                                 .gzip = s->gzip,
                                 .zstd = s->zstd,
                                 .user_agent = USER_AGENT,
                                 .ca_file = or_null(s->ca_file),
                                 .cert_file = or_null(s->cert_file),
                                 .key_file = or_null(s->key_file)};
    struct ltn_http_result result;
    int rc = ltn_http_client_call(s->http_client, &call, &result);
    if (rc == 0) {
        ret->outcome = LTN_PUSH_SENT;
        read_response(ret, result.body, result.body_len);
        return;
    }
    bool credentials = result.status == 401 || result.status == 403;
    ret->wrong_credentials = credentials;
    ret->outcome = result.retry || credentials || rc == -ENOMEM ? LTN_PUSH_RETRY : LTN_PUSH_REFUSED;
    ret->retry_after_ns = result.retry_after_ns;
    if (result.status == 0) {
        say(ret, result.error);
    } else {
        (void)snprintf(ret->message, sizeof(ret->message), "HTTP status %d", result.status);
    }
}

void ltn_push_send(struct ltn_push_sender *s, const char *token, const void *bytes, size_t n,
                   struct ltn_push_answer *ret)
{
    *ret = (struct ltn_push_answer){.outcome = LTN_PUSH_RETRY};
    if (s->grpc) {
        send_grpc(s, token, bytes, n, ret);
    } else {
        send_http(s, token, bytes, n, ret);
    }
}
