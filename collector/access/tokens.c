/* SPDX-License-Identifier: Apache-2.0 */
#include "access/tokens.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"

#define MAX_FILE_BYTES  ((size_t)1 << 20)
#define MAX_TOKEN_BYTES 1024
#define MAX_NAME_BYTES  128
#define DIGEST_BYTES    32
#define BLANKS          " \t\r"

/* Tokens are kept and looked up by their SHA-256, so that how long a comparison takes says nothing
 * about them. */
struct ltn_tokens {
    EVP_MD *sha256;           /* NULL until there is a file */
    struct ltn_map by_digest; /* -> const char *, the cluster; any_cluster for every */
    struct ltn_map clusters;  /* name -> its own copy; grows, so that names stay valid */
};

static const char any_cluster[] = "*";

struct ltn_tokens *ltn_tokens_new(void)
{
    struct ltn_tokens *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return NULL;
    }
    ltn_map_init(&t->by_digest, LTN_TOKENS_MAX);
    ltn_map_init(&t->clusters, LTN_TOKENS_MAX);
    return t;
}

void ltn_tokens_free(struct ltn_tokens *t)
{
    if (t == NULL) {
        return;
    }
    EVP_MD_free(t->sha256);
    ltn_map_done(&t->by_digest, NULL);
    ltn_map_done(&t->clusters, free);
    free(t);
}

size_t ltn_tokens_count(const struct ltn_tokens *t)
{
    return t->by_digest.len;
}

static bool digest_of(const struct ltn_tokens *t, const char *token, size_t n,
                      uint8_t out[DIGEST_BYTES])
{
    return EVP_Digest(token, n, out, NULL, t->sha256, NULL) == 1;
}

bool ltn_tokens_find(const struct ltn_tokens *t, const char *token, const char **ret_cluster)
{
    uint8_t digest[DIGEST_BYTES];
    size_t n = strlen(token);
    if (t->sha256 == NULL || n == 0 || n > MAX_TOKEN_BYTES || !digest_of(t, token, n, digest)) {
        return false;
    }
    const char *cluster = ltn_map_get(&t->by_digest, digest, sizeof(digest));
    if (cluster == NULL) {
        return false;
    }
    *ret_cluster = cluster != any_cluster ? cluster : NULL;
    return true;
}

/* ---- reading ---- */

static int intern(struct ltn_tokens *t, const char *name, size_t n, const char **ret)
{
    if (n == 1 && name[0] == '*') {
        *ret = any_cluster;
        return 0;
    }
    char *known = ltn_map_get(&t->clusters, name, n);
    if (known == NULL) {
        known = strndup(name, n);
        if (known == NULL) {
            return -ENOMEM;
        }
        int rc = ltn_map_put(&t->clusters, name, n, known);
        if (rc != 0) {
            free(known);
            return rc;
        }
    }
    *ret = known;
    return 0;
}

static int put(struct ltn_tokens *t, struct ltn_map *into, const char *cluster, const char *token,
               size_t n)
{
    uint8_t digest[DIGEST_BYTES];
    if (!digest_of(t, token, n, digest)) {
        return -ENOMEM;
    }
    const char *before = ltn_map_get(into, digest, sizeof(digest));
    if (before != NULL && before != cluster) {
        return -EEXIST;
    }
    return ltn_map_put(into, digest, sizeof(digest), (void *)(uintptr_t)cluster);
}

/* One line without its end. 0, or what is wrong with it in *ret_why. */
static int take_line(struct ltn_tokens *t, struct ltn_map *into, const char *line,
                     const char **ret_why)
{
    const char *first = line + strspn(line, BLANKS);
    size_t first_n = strcspn(first, BLANKS);
    const char *second = first + first_n + strspn(first + first_n, BLANKS);
    size_t second_n = strcspn(second, BLANKS);
    const char *cluster = any_cluster;
    *ret_why = NULL;
    if (first_n == 0 || first[0] == '#') {
        return 0;
    }
    if (second[second_n + strspn(second + second_n, BLANKS)] != '\0') {
        *ret_why = "more than a cluster and a token";
        return LTN_ERR_CONFIG;
    }
    const char *token = second_n > 0 ? second : first;
    size_t token_n = second_n > 0 ? second_n : first_n;
    if (token_n > MAX_TOKEN_BYTES || (second_n > 0 && first_n >= MAX_NAME_BYTES)) {
        *ret_why = "too long";
        return LTN_ERR_CONFIG;
    }
    int rc = second_n > 0 ? intern(t, first, first_n, &cluster) : 0;
    if (rc == 0) {
        rc = put(t, into, cluster, token, token_n);
    }
    if (rc == -EEXIST) {
        *ret_why = "a token that another line gives to another cluster";
    } else if (rc == LTN_ERR_COUNT) {
        *ret_why = "too many tokens";
    }
    return rc;
}

static int parse(struct ltn_tokens *t, struct ltn_map *into, char *text, const char *path,
                 struct ltn_errinfo *info)
{
    unsigned number = 0;
    for (char *line = text; line != NULL;) {
        const char *why = NULL;
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        number++;
        int rc = take_line(t, into, line, &why);
        if (why != NULL) {
            return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%.150s: line %u: %s", path, number, why);
        }
        if (rc != 0) {
            return ltn_errinfo_set(info, rc, "%.150s: %s", path, ltn_err_str(rc));
        }
        line = end;
    }
    if (into->len == 0) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%.150s: no token there", path);
    }
    return 0;
}

int ltn_tokens_load(struct ltn_tokens *t, const char *path, struct ltn_errinfo *info)
{
    char *text = calloc(1, MAX_FILE_BYTES);
    if (t->sha256 == NULL) {
        t->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    }
    if (text == NULL || t->sha256 == NULL) {
        free(text);
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    struct ltn_map fresh;
    ltn_map_init(&fresh, LTN_TOKENS_MAX);
    long n = ltn_file_read_head(path, text, MAX_FILE_BYTES);
    int rc = 0;
    if (n < 0) {
        rc = ltn_errinfo_set(info, (int)n, "%.150s: %s", path, ltn_err_str((int)n));
    } else if ((size_t)n >= MAX_FILE_BYTES - 1 || strlen(text) != (size_t)n) {
        rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "%.150s: too long or not text", path);
    } else {
        rc = parse(t, &fresh, text, path, info);
    }
    if (rc == 0) {
        ltn_map_done(&t->by_digest, NULL);
        t->by_digest = fresh;
    } else {
        ltn_map_done(&fresh, NULL);
    }
    explicit_bzero(text, MAX_FILE_BYTES);
    free(text);
    return rc;
}
