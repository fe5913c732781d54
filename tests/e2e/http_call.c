/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the clients of common/http from the end-to-end tests:
 *   http_call grpc TARGET PATH BODY TIMEOUT_MS [gzip|zstd] [count=N] [pause_ms=N] [token=T]
 *             [ca=FILE [cert=FILE] [key=FILE] [name=NAME]]
 *   http_call http URL BODY|- TIMEOUT_MS [gzip|zstd] [max=N] [ca=FILE] [cert=FILE] [key=FILE]
 * Prints one line a call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/client.h"
#include "http/tls.h"

static const char *option(int argc, char **argv, const char *name)
{
    size_t n = strlen(name);
    for (int i = 5; i < argc; i++) {
        if (strncmp(argv[i], name, n) == 0) {
            return argv[i] + n;
        }
    }
    return NULL;
}

static uint64_t number(const char *text, uint64_t otherwise)
{
    uint64_t v;
    return text != NULL && ltn_parse_u64(text, &v) ? v : otherwise;
}

static int run_grpc(int argc, char **argv, uint64_t timeout_ms)
{
    struct ltn_grpc_client *client;
    struct ltn_tls_client *tls = NULL;
    struct ltn_errinfo info = {0};
    const struct ltn_tls_client_conf tc = {
        .ca_file = option(argc, argv, "ca="),
        .cert_file = option(argc, argv, "cert="),
        .key_file = option(argc, argv, "key="),
    };
    if (tc.ca_file != NULL && ltn_tls_client_new(&tc, &tls, &info) != 0) {
        (void)fprintf(stderr, "%s\n", info.msg);
        return 2;
    }
    const struct ltn_grpc_client_conf conf = {
        .target = argv[2],
        .gzip = option(argc, argv, "gzip") != NULL,
        .zstd = option(argc, argv, "zstd") != NULL,
        .bearer_token = option(argc, argv, "token="),
        .tls = tls,
        .server_name = option(argc, argv, "name="),
    };
    if (ltn_grpc_client_new(&conf, &client) != 0) {
        return 2;
    }
    uint64_t count = number(option(argc, argv, "count="), 1);
    uint64_t pause_ms = number(option(argc, argv, "pause_ms="), 0);
    const struct ltn_grpc_field field = {"x-node", "n1"};
    const struct ltn_grpc_call call = {
        .path = argv[3],
        .body = argv[4],
        .body_len = strlen(argv[4]),
        .timeout_ns = timeout_ms * LTN_NS_PER_MS,
        .metadata = &field,
        .metadata_count = 1,
    };
    for (uint64_t i = 0; i < count; i++) {
        struct ltn_grpc_result r;
        uint64_t began_ns = ltn_now_mono_ns();
        int rc = ltn_grpc_client_call(client, &call, &r);
        uint64_t took_ms = (ltn_now_mono_ns() - began_ns) / LTN_NS_PER_MS;
        const char *threshold = ltn_grpc_client_metadata(client, "x-threshold");
        (void)printf("rc=%d status=%d retry=%d after_ms=%llu sent=%d took_ms=%llu len=%zu "
                     "threshold=%s message=%s\n",
                     rc, r.status, r.retry, (unsigned long long)(r.retry_after_ns / LTN_NS_PER_MS),
                     r.sent, (unsigned long long)took_ms, r.body_len,
                     threshold != NULL ? threshold : "", r.message);
        (void)fflush(stdout);
        (void)usleep((useconds_t)(pause_ms * 1000));
    }
    ltn_grpc_client_free(client);
    ltn_tls_client_free(tls);
    return 0;
}

static int run_http(int argc, char **argv, uint64_t timeout_ms)
{
    struct ltn_http_client *client = ltn_http_client_new();
    if (client == NULL) {
        return 2;
    }
    bool body = strcmp(argv[3], "-") != 0;
    const struct ltn_http_call call = {
        .url = argv[2],
        .body = body ? argv[3] : NULL,
        .body_len = body ? strlen(argv[3]) : 0,
        .content_type = body ? "text/plain" : NULL,
        .timeout_ns = timeout_ms * LTN_NS_PER_MS,
        .gzip = option(argc, argv, "gzip") != NULL,
        .zstd = option(argc, argv, "zstd") != NULL,
        .max_response_bytes = (size_t)number(option(argc, argv, "max="), 0),
        .ca_file = option(argc, argv, "ca="),
        .cert_file = option(argc, argv, "cert="),
        .key_file = option(argc, argv, "key="),
        .bearer_token = option(argc, argv, "token="),
    };
    struct ltn_http_result r;
    int rc = ltn_http_client_call(client, &call, &r);
    (void)printf("rc=%d status=%d retry=%d after_ms=%llu len=%zu type=%s error=%s\n", rc, r.status,
                 r.retry, (unsigned long long)(r.retry_after_ns / LTN_NS_PER_MS), r.body_len,
                 r.content_type, r.error);
    ltn_http_client_free(client);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 6 && strcmp(argv[1], "grpc") == 0) {
        return run_grpc(argc, argv, number(argv[5], 1000));
    }
    if (argc >= 5 && strcmp(argv[1], "http") == 0) {
        return run_http(argc, argv, number(argv[4], 1000));
    }
    return 2;
}
