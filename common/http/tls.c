/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/tls_int.h"

#define MAX_FILES      3
#define MAX_ALLOW      64
#define TICKET_LIFE_S  3600
#define VERIFY_DEPTH   8
#define CIPHERS_TLS12  "ECDHE+AESGCM:ECDHE+CHACHA20"
#define SESSION_ID     "lanterne"
#define MAX_NAME_BYTES (LTN_TLS_IDENTITY_BYTES - 8)

/* ---- files ---- */

/* What tells one content of a file from another. */
struct stamp {
    struct timespec mtime;
    ino_t ino;
    off_t size;
};

struct files {
    char *path[MAX_FILES]; /* NULL: none */
    struct stamp stamp[MAX_FILES];
};

static struct stamp stamp_of(const char *path)
{
    struct stat st;
    if (path == NULL || stat(path, &st) != 0) {
        return (struct stamp){.size = -1};
    }
    return (struct stamp){.mtime = st.st_mtim, .ino = st.st_ino, .size = st.st_size};
}

/* Notes how the files are now; true when they are not as they were noted before. */
static bool files_changed(struct files *f)
{
    bool changed = false;
    for (size_t i = 0; i < MAX_FILES; i++) {
        struct stamp now = stamp_of(f->path[i]);
        const struct stamp *old = &f->stamp[i];
        changed = changed || now.mtime.tv_sec != old->mtime.tv_sec ||
                  now.mtime.tv_nsec != old->mtime.tv_nsec || now.ino != old->ino ||
                  now.size != old->size;
        f->stamp[i] = now;
    }
    return changed;
}

static int files_copy(struct files *f, const char *a, const char *b, const char *c)
{
    const char *const from[MAX_FILES] = {a, b, c};
    for (size_t i = 0; i < MAX_FILES; i++) {
        if (from[i] != NULL) {
            f->path[i] = strdup(from[i]);
            if (f->path[i] == NULL) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}

static void files_done(struct files *f)
{
    for (size_t i = 0; i < MAX_FILES; i++) {
        free(f->path[i]);
    }
}

/* ---- what both sides' contexts have in common ---- */

/* A key with a password is an error, not a question at the terminal. */
static int no_password(char *buf, int size, int rwflag, void *arg)
{
    (void)buf, (void)size, (void)rwflag, (void)arg;
    return 0;
}

static int file_error(struct ltn_errinfo *info, const char *what, const char *path)
{
    unsigned long code = ERR_peek_error();
    const char *text = code != 0 ? ERR_reason_error_string(code) : NULL;
    int rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "%.100s: no usable %s: %s", path, what,
                             text != NULL ? text : "cannot be read");
    ERR_clear_error();
    return rc;
}

static SSL_CTX *new_context(const SSL_METHOD *method)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(method);
    if (ctx == NULL) {
        return NULL;
    }
    SSL_CTX_set_default_passwd_cb(ctx, no_password);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                       SSL_OP_CIPHER_SERVER_PREFERENCE |
                                       SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    /* Records without data, such as new keys, end a read: a flood of them must not hold a loop. */
    (void)SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify_depth(ctx, VERIFY_DEPTH);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(ctx, CIPHERS_TLS12) != 1) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

static int use_key_pair(SSL_CTX *ctx, const char *cert, const char *key, struct ltn_errinfo *info)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1) {
        return file_error(info, "certificate", cert);
    }
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1) {
        return file_error(info, "key for the certificate", key);
    }
    return 0;
}

/* ---- names ---- */

static bool text_fits(const char *p, const char *s, bool fold)
{
    const char *star = NULL;
    const char *back = NULL;
    while (*s != '\0') {
        int a = fold ? tolower((unsigned char)*p) : (unsigned char)*p;
        int b = fold ? tolower((unsigned char)*s) : (unsigned char)*s;
        if (*p == '*') {
            star = ++p;
            back = s;
        } else if (a == b) {
            p++;
            s++;
        } else if (star != NULL) {
            p = star;
            s = ++back;
        } else {
            return false;
        }
    }
    while (*p == '*') {
        p++;
    }
    return *p == '\0';
}

bool ltn_tls_name_fits(const char *pattern, const char *name)
{
    size_t n = strcspn(pattern, ":");
    if (pattern[n] != ':' || strncmp(pattern, name, n + 1) != 0) {
        return false;
    }
    return text_fits(pattern + n + 1, name + n + 1, strncmp(pattern, "DNS:", 4) == 0);
}

/* The name as text; false for kinds that are not used, and for odd characters. */
static bool name_text(const GENERAL_NAME *g, char out[LTN_TLS_IDENTITY_BYTES])
{
    const char *kind = g->type == GEN_DNS ? "DNS:" : g->type == GEN_URI ? "URI:" : NULL;
    if (kind == NULL) {
        return false;
    }
    const ASN1_IA5STRING *v = g->type == GEN_DNS ? g->d.dNSName : g->d.uniformResourceIdentifier;
    const unsigned char *p = ASN1_STRING_get0_data(v);
    int n = ASN1_STRING_length(v);
    if (n <= 0 || n > MAX_NAME_BYTES) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (p[i] <= 0x20 || p[i] >= 0x7f) {
            return false;
        }
    }
    (void)snprintf(out, LTN_TLS_IDENTITY_BYTES, "%s%.*s", kind, n, (const char *)p);
    return true;
}

/* ---- server ---- */

struct ltn_tls_server {
    struct files files; /* certificate, key, CA; polling thread only */
    uint64_t loaded_ns; /* polling thread only */
    bool require_client_cert;
    char *allow[MAX_ALLOW];
    size_t allow_count;
    pthread_mutex_t lock;
    SSL_CTX *ctx;      /* under lock */
    int64_t expires_s; /* under lock */
};

/* First name that the list allows; without a list the first. False: none. */
static bool find_name(const struct ltn_tls_server *t, X509 *cert, char out[LTN_TLS_IDENTITY_BYTES])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    int n = names != NULL ? sk_GENERAL_NAME_num(names) : 0;
    bool found = false;
    for (int i = 0; i < n && !found; i++) {
        if (!name_text(sk_GENERAL_NAME_value(names, i), out)) {
            continue;
        }
        found = t == NULL || t->allow_count == 0;
        for (size_t k = 0; t != NULL && k < t->allow_count && !found; k++) {
            found = ltn_tls_name_fits(t->allow[k], out);
        }
    }
    GENERAL_NAMES_free(names);
    if (!found) {
        out[0] = '\0';
    }
    return found;
}

void ltn_tls_identity(SSL *ssl, char out[LTN_TLS_IDENTITY_BYTES])
{
    X509 *cert = SSL_get0_peer_certificate(ssl);
    char common[64] = "";
    out[0] = '\0';
    if (cert == NULL || find_name(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)), cert, out)) {
        return;
    }
    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, common,
                                    sizeof(common));
    for (char *p = common; *p != '\0'; p++) {
        if (*p <= 0x20 || *p >= 0x7f) {
            *p = '?';
        }
    }
    (void)snprintf(out, LTN_TLS_IDENTITY_BYTES, "CN:%s", common);
}

static int on_verify(int ok, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    const struct ltn_tls_server *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    char name[LTN_TLS_IDENTITY_BYTES];
    if (ok != 1 || X509_STORE_CTX_get_error_depth(store) != 0 || t->allow_count == 0) {
        return ok;
    }
    if (find_name(t, X509_STORE_CTX_get_current_cert(store), name)) {
        return 1;
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned int in_len, void *arg)
{
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *chosen = NULL;
    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int use_client_ca(const struct ltn_tls_server *t, SSL_CTX *ctx, const char *path,
                         struct ltn_errinfo *info)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (names == NULL || SSL_CTX_load_verify_file(ctx, path) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return file_error(info, "certificate authority", path);
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    int mode = SSL_VERIFY_PEER | (t->require_client_cert ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);
    SSL_CTX_set_verify(ctx, mode, on_verify);
    return 0;
}

static int64_t end_of_certificate(SSL_CTX *ctx)
{
    struct tm tm;
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    if (cert == NULL || ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1) {
        return 0;
    }
    return (int64_t)timegm(&tm);
}

static int make_server_context(struct ltn_tls_server *t, SSL_CTX **ret, struct ltn_errinfo *info)
{
    SSL_CTX *ctx = new_context(TLS_server_method());
    if (ctx == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "cannot set up TLS");
    }
    SSL_CTX_set_app_data(ctx, t);
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
    (void)SSL_CTX_set_timeout(ctx, TICKET_LIFE_S);
    (void)SSL_CTX_set_num_tickets(ctx, 1);
    (void)SSL_CTX_set_session_id_context(ctx, (const unsigned char *)SESSION_ID,
                                         sizeof(SESSION_ID) - 1);
    int rc = use_key_pair(ctx, t->files.path[0], t->files.path[1], info);
    if (rc == 0 && t->files.path[2] != NULL) {
        rc = use_client_ca(t, ctx, t->files.path[2], info);
    }
    if (rc != 0) {
        SSL_CTX_free(ctx);
        return rc;
    }
    *ret = ctx;
    return 0;
}

int ltn_tls_server_reload(struct ltn_tls_server *t, struct ltn_errinfo *info)
{
    SSL_CTX *fresh = NULL;
    int rc = make_server_context(t, &fresh, info);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&t->lock);
    SSL_CTX *old = t->ctx;
    t->ctx = fresh;
    t->expires_s = end_of_certificate(fresh);
    pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(old); /* sessions made of it hold references */
    return 0;
}

int ltn_tls_server_poll(struct ltn_tls_server *t, struct ltn_errinfo *info)
{
    uint64_t now_ns = ltn_now_mono_ns();
    /* Noted before reading, so that a change in between is seen the next time. */
    bool changed = files_changed(&t->files);
    if (!changed && now_ns - t->loaded_ns < TICKET_LIFE_S * LTN_NS_PER_S) {
        return 0;
    }
    t->loaded_ns = now_ns;
    int rc = ltn_tls_server_reload(t, info);
    return rc == 0 ? 1 : rc;
}

int64_t ltn_tls_server_expires_s(struct ltn_tls_server *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t s = t->expires_s;
    pthread_mutex_unlock(&t->lock);
    return s;
}

static int copy_allow(struct ltn_tls_server *t, const struct ltn_tls_server_conf *conf,
                      struct ltn_errinfo *info)
{
    for (size_t i = 0; i < conf->allow_count; i++) {
        const char *p = conf->allow[i];
        bool known = (strncmp(p, "DNS:", 4) == 0 || strncmp(p, "URI:", 4) == 0) && p[4] != '\0';
        if (!known || t->allow_count == MAX_ALLOW) {
            return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                                   known ? "%.100s: more than 64 allowed names"
                                         : "\"%.100s\": an allowed name is DNS:NAME or URI:NAME",
                                   p);
        }
        t->allow[t->allow_count] = strdup(p);
        if (t->allow[t->allow_count] == NULL) {
            return -ENOMEM;
        }
        t->allow_count++;
    }
    return 0;
}

int ltn_tls_server_new(const struct ltn_tls_server_conf *conf, struct ltn_tls_server **ret,
                       struct ltn_errinfo *info)
{
    struct ltn_tls_server *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->require_client_cert = conf->require_client_cert;
    t->loaded_ns = ltn_now_mono_ns();
    int rc = files_copy(&t->files, conf->cert_file, conf->key_file, conf->client_ca_file);
    if (rc == 0) {
        rc = copy_allow(t, conf, info);
    }
    if (rc == 0) {
        (void)files_changed(&t->files);
        rc = ltn_tls_server_reload(t, info);
    } else if (rc == -ENOMEM) {
        rc = ltn_errinfo_set(info, rc, "out of memory");
    }
    if (rc != 0) {
        ltn_tls_server_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void ltn_tls_server_free(struct ltn_tls_server *t)
{
    if (t == NULL) {
        return;
    }
    SSL_CTX_free(t->ctx);
    files_done(&t->files);
    for (size_t i = 0; i < t->allow_count; i++) {
        free(t->allow[i]);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

SSL *ltn_tls_accept(struct ltn_tls_server *t, int fd)
{
    ERR_clear_error();
    pthread_mutex_lock(&t->lock);
    SSL *ssl = SSL_new(t->ctx);
    pthread_mutex_unlock(&t->lock);
    if (ssl == NULL || !ltn_tls_set_socket(ssl, fd)) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return ssl;
}

/* ---- client ---- */

struct ltn_tls_client {
    struct files files; /* CA, certificate, key */
    bool insecure;
    SSL_CTX *ctx;
};

static int make_client_context(const struct ltn_tls_client *t, SSL_CTX **ret,
                               struct ltn_errinfo *info)
{
    const char *const *path = (const char *const *)t->files.path;
    static const unsigned char h2[] = "\x02h2";
    SSL_CTX *ctx = new_context(TLS_client_method());
    if (ctx == NULL || SSL_CTX_set_alpn_protos(ctx, h2, sizeof(h2) - 1) != 0) {
        SSL_CTX_free(ctx);
        return ltn_errinfo_set(info, -ENOMEM, "cannot set up TLS");
    }
    int rc = 0;
    if (path[0] != NULL && SSL_CTX_load_verify_file(ctx, path[0]) != 1) {
        rc = file_error(info, "certificate authority", path[0]);
    } else if (path[0] == NULL) {
        (void)SSL_CTX_set_default_verify_paths(ctx); /* none there: no server passes */
    }
    if (rc == 0 && path[1] != NULL) {
        rc = use_key_pair(ctx, path[1], path[2] != NULL ? path[2] : path[1], info);
    }
    SSL_CTX_set_verify(ctx, t->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    ERR_clear_error();
    if (rc != 0) {
        SSL_CTX_free(ctx);
        return rc;
    }
    *ret = ctx;
    return 0;
}

int ltn_tls_client_new(const struct ltn_tls_client_conf *conf, struct ltn_tls_client **ret,
                       struct ltn_errinfo *info)
{
    struct ltn_tls_client *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    t->insecure = conf->insecure;
    int rc = files_copy(&t->files, conf->ca_file, conf->cert_file, conf->key_file);
    if (rc != 0) {
        rc = ltn_errinfo_set(info, rc, "out of memory");
    } else {
        (void)files_changed(&t->files);
        rc = make_client_context(t, &t->ctx, info);
    }
    if (rc != 0) {
        ltn_tls_client_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void ltn_tls_client_free(struct ltn_tls_client *t)
{
    if (t == NULL) {
        return;
    }
    SSL_CTX_free(t->ctx);
    files_done(&t->files);
    free(t);
}

/* The certificate must be for that name or address. */
static bool expect_name(SSL *ssl, const char *name)
{
    uint8_t address[16];
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    }
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    /* SSL_set_tlsext_host_name() without its cast, which drops const. */
    return SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    (void *)(uintptr_t)name) == 1 &&
           SSL_set1_host(ssl, name) == 1;
}

SSL *ltn_tls_connect(struct ltn_tls_client *t, int fd, const char *name)
{
    SSL_CTX *fresh = NULL;
    if (files_changed(&t->files) && make_client_context(t, &fresh, NULL) == 0) {
        SSL_CTX_free(t->ctx);
        t->ctx = fresh;
    }
    ERR_clear_error();
    SSL *ssl = SSL_new(t->ctx);
    if (ssl == NULL || !ltn_tls_set_socket(ssl, fd) || !expect_name(ssl, name)) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}
