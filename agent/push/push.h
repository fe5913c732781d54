/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread "push": sends the rows of the record's outbox to a collector over OTLP/gRPC or
 * OTLP/HTTP and has them deleted once they are acknowledged. Every row arrives at least once, or is
 * dropped for a counted reason: the collector refused it for good, or the outbox passed its bounds.
 * New data goes before the backlog of an outage. A dead collector costs nothing but room in the
 * outbox.
 */
#ifndef LTN_PUSH_PUSH_H
#define LTN_PUSH_PUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "record/record.h"

enum ltn_push_protocol {
    LTN_PUSH_AUTO, /* HTTP on port 4318, for https:// and endpoints of OTEL_* not on port 4317;
                      else gRPC */
    LTN_PUSH_GRPC,
    LTN_PUSH_HTTP,
};

#define LTN_PUSH_ENDPOINT_BYTES 1024
#define LTN_PUSH_HEADERS_BYTES  4096
#define LTN_PUSH_MAX_HEADERS    32

/* Where and how one signal is sent. */
struct ltn_push_target {
    char endpoint[LTN_PUSH_ENDPOINT_BYTES]; /* "" : this signal is not sent */
    bool as_is;                             /* URL of the signal itself, nothing is appended */
    bool from_otel;                         /* came from OTEL_* */
    enum ltn_push_protocol protocol;
    char headers[LTN_PUSH_HEADERS_BYTES]; /* "k=v,k2=v2", values percent-encoded */
    uint64_t timeout_ns;
    bool gzip;
    bool zstd;                               /* instead of gzip */
    bool insecure;                           /* gRPC without a scheme: cleartext also for OTEL_* */
    char ca_file[LTN_PUSH_ENDPOINT_BYTES];   /* "": the system's */
    char cert_file[LTN_PUSH_ENDPOINT_BYTES]; /* shown to the collector; "": none */
    char key_file[LTN_PUSH_ENDPOINT_BYTES];  /* its key; "": in cert_file */
    char server_name[256];                   /* gRPC: name in the certificate; "": the host */
};

#define LTN_PUSH_MAX_NOTES 8

struct ltn_push_conf {
    struct ltn_push_target metrics;
    struct ltn_push_target logs;
    char token_file[LTN_PUSH_ENDPOINT_BYTES]; /* "": none; read again when it changes */
    uint64_t first_backoff_ns;   /* 0: 1 s; doubled up to the longest, half of it random */
    uint64_t longest_backoff_ns; /* 0: 30 s */
    unsigned backfill_per_s;     /* backlog rows a second; 0: 10 */
    uint64_t flush_ns;           /* time for what runs and is left at stop; 0: 2 s */
    /* What was asked for and is not done, for the log. */
    char notes[LTN_PUSH_MAX_NOTES][160];
    size_t note_count;
};

/* Certificates and the collector's name, for both signals; "" leaves what is there. */
struct ltn_push_tls_conf {
    const char *ca_file, *cert_file, *key_file, *server_name;
};

/* Defaults: no endpoint, 10 s, gzip. */
void ltn_push_conf_init(struct ltn_push_conf *c);

/* Sets the endpoint of both signals ("host:4317", "http://host:4318/base"). LTN_ERR_CONFIG. */
int ltn_push_conf_endpoint(struct ltn_push_conf *c, const char *endpoint,
                           struct ltn_errinfo *info) ltn_must_check;

/* LTN_ERR_CONFIG when a text is too long. */
int ltn_push_conf_tls(struct ltn_push_conf *c, const struct ltn_push_tls_conf *tls,
                      struct ltn_errinfo *info) ltn_must_check;

/* Takes OTEL_EXPORTER_OTLP_{ENDPOINT,INSECURE,HEADERS,TIMEOUT,COMPRESSION,PROTOCOL,CERTIFICATE,
 * CLIENT_CERTIFICATE,CLIENT_KEY} and their METRICS_ and LOGS_ forms from envp, and the preferences
 * about metrics. LTN_ERR_CONFIG names the variable whose value cannot be used; what is only a wish
 * or is not known is named in the notes. */
int ltn_push_conf_env(struct ltn_push_conf *c, char *const *envp,
                      struct ltn_errinfo *info) ltn_must_check;

/* Whether anything would be sent. */
bool ltn_push_conf_enabled(const struct ltn_push_conf *c);

struct ltn_push;

/* Prepares pushing from a record, which must outlive it. Checks the configuration
 * (LTN_ERR_CONFIG) and reads the certificates. Free with ltn_push_close. */
int ltn_push_open(const struct ltn_push_conf *c, struct ltn_record *record,
                  struct ltn_push **ret_push, struct ltn_errinfo *info) ltn_must_check;

/* Starts the thread. 0 or -errno. */
int ltn_push_start(struct ltn_push *p) ltn_must_check;

/* Sends what is left for at most flush_ns, a running call included (a host name being looked up may
 * take longer), ends the thread.
 * Call it before ltn_record_stop, so that acknowledged rows are still deleted. */
void ltn_push_stop(struct ltn_push *p);

/* Stops and frees. NULL is ignored. */
void ltn_push_close(struct ltn_push *p);

struct ltn_push_stats {
    uint64_t sent; /* requests acknowledged */
    uint64_t sent_bytes;
    uint64_t refused;         /* requests refused for good, dropped */
    uint64_t not_wanted;      /* requests of a signal without an endpoint, dropped */
    uint64_t rejected_points; /* parts of acknowledged requests that the collector did not take */
    uint64_t retries;         /* failed attempts to be repeated */
    uint64_t backfilled;      /* of sent: from the backlog */
    uint64_t last_sent_ns;    /* Unix time; 0: never */
    uint64_t backoff_ns;      /* present pause; 0 when all is well */
    bool wrong_credentials;   /* why the last failed attempt is repeated */
    char last_error[160];     /* of the last failed attempt */
    char last_refusal[160];   /* why a request was refused for good */
    char last_rejection[160]; /* why parts of one were not taken; "": not said */
    char verdict[256];        /* lanterne-verdict of the last answer */
};

/* Any thread. */
void ltn_push_stats(struct ltn_push *p, struct ltn_push_stats *ret);

#endif /* LTN_PUSH_PUSH_H */
