/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/file.h"
#include "http/coding.h"

#define TAR_BYTES   ((size_t)16 << 20)
#define FILE_BYTES  ((size_t)1 << 20)
#define BLOCK_BYTES 512
#define REMOVED     "[removed]"

void ltn_bundle_init(struct ltn_bundle *b)
{
    ltn_buf_init(&b->tar, TAR_BYTES);
}

void ltn_bundle_done(struct ltn_bundle *b)
{
    ltn_buf_done(&b->tar);
}

/* ---- secrets ---- */

static bool is_word_end(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '"' || c == '\'' || c == '\0';
}

/* Length of "user:word@" behind "//", 0 when there is none. */
static size_t userinfo_length(const char *s, size_t n)
{
    for (size_t i = 0; i < n && !is_word_end(s[i]) && s[i] != '/'; i++) {
        if (s[i] == '@') {
            return i + 1;
        }
    }
    return 0;
}

/* Length of a key that sounds secret with its separator, at s; 0 when there is none. Paths of files
 * ("token_file:") are no secrets. */
static size_t secret_key_length(const char *s, size_t n)
{
    static const char *const words[] = {"token",  "password", "passwd", "secret", "authorization",
                                        "bearer", "api_key",  "apikey", "api-key"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(words); i++) {
        size_t len = strlen(words[i]);
        if (len >= n || strncasecmp(s, words[i], len) != 0) {
            continue;
        }
        size_t at = len;
        while (at < n && (s[at] == '"' || s[at] == '\'')) {
            at++;
        }
        bool bearer = strcmp(words[i], "bearer") == 0 && at < n && s[at] == ' ';
        if (at < n && (s[at] == ':' || s[at] == '=' || bearer)) {
            at++;
            while (at < n && (s[at] == ' ' || s[at] == '"' || s[at] == '\'')) {
                at++;
            }
            return at;
        }
    }
    return 0;
}

void ltn_bundle_redact(struct ltn_buf *out, const char *text, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t len = 0;
        if (text[i] == '/' && i + 1 < n && text[i + 1] == '/' &&
            (len = userinfo_length(text + i + 2, n - i - 2)) > 0) {
            (void)ltn_buf_puts(out, "//" REMOVED "@");
            i += 2 + len;
            continue;
        }
        len = secret_key_length(text + i, n - i);
        if (len > 0) {
            (void)ltn_buf_append(out, text + i, len);
            i += len;
            /* "Authorization: Bearer x": the second word is the secret. */
            if (n - i > 7 && strncasecmp(text + i, "bearer ", 7) == 0) {
                i += 7;
            }
            bool some = false;
            while (i < n && !is_word_end(text[i])) {
                i++;
                some = true;
            }
            (void)ltn_buf_puts(out, some ? REMOVED : "");
            continue;
        }
        (void)ltn_buf_putc(out, text[i++]);
    }
}

/* ---- tar (POSIX ustar) ---- */

struct ustar {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct ustar) == BLOCK_BYTES, "a tar header is one block");

static void put_header(struct ltn_buf *tar, const char *name, size_t n)
{
    struct ustar h;
    memset(&h, 0, sizeof(h));
    (void)snprintf(h.name, sizeof(h.name), "lanterne-support/%.80s", name);
    (void)snprintf(h.mode, sizeof(h.mode), "%07o", 0600);
    (void)snprintf(h.uid, sizeof(h.uid), "%07o", 0);
    (void)snprintf(h.gid, sizeof(h.gid), "%07o", 0);
    (void)snprintf(h.size, sizeof(h.size), "%011zo", n);
    (void)snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)time(NULL));
    memset(h.sum, ' ', sizeof(h.sum));
    h.type = '0';
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    unsigned sum = 0;
    const unsigned char *p = (const unsigned char *)&h;
    for (size_t i = 0; i < sizeof(h); i++) {
        sum += p[i];
    }
    (void)snprintf(h.sum, sizeof(h.sum), "%06o", sum);
    h.sum[7] = ' ';
    (void)ltn_buf_append(tar, &h, sizeof(h));
}

void ltn_bundle_add(struct ltn_bundle *b, const char *name, const char *text, size_t n)
{
    static const char zeros[BLOCK_BYTES];
    struct ltn_buf clean;
    ltn_buf_init(&clean, 2 * FILE_BYTES);
    ltn_bundle_redact(&clean, text, n < FILE_BYTES ? n : FILE_BYTES);
    put_header(&b->tar, name, clean.len);
    (void)ltn_buf_append(&b->tar, ltn_buf_str(&clean), clean.len);
    (void)ltn_buf_append(&b->tar, zeros, (BLOCK_BYTES - clean.len % BLOCK_BYTES) % BLOCK_BYTES);
    ltn_buf_done(&clean);
}

void ltn_bundle_add_file(struct ltn_bundle *b, const char *name, const char *path)
{
    struct ltn_buf text;
    ltn_buf_init(&text, FILE_BYTES);
    if (ltn_file_read(path, &text) == 0) {
        ltn_bundle_add(b, name, ltn_buf_str(&text), text.len);
    }
    ltn_buf_done(&text);
}

int ltn_bundle_write(struct ltn_bundle *b, const char *path, struct ltn_errinfo *info)
{
    static const char end[2 * BLOCK_BYTES];
    struct ltn_buf gz;
    ltn_buf_init(&gz, TAR_BYTES);
    (void)ltn_buf_append(&b->tar, end, sizeof(end));
    int rc = ltn_buf_error(&b->tar);
    if (rc == 0) {
        rc = ltn_gzip(ltn_buf_str(&b->tar), b->tar.len, &gz);
    }
    int fd = -1;
    if (rc == 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        rc = fd < 0 ? -errno : ltn_fd_write_all(fd, gz.data, gz.len);
    }
    if (fd >= 0 && close(fd) != 0 && rc == 0) {
        rc = -errno;
    }
    ltn_buf_done(&gz);
    return rc < 0 ? ltn_errinfo_set(info, rc, "%s: %s", path, ltn_err_str(rc)) : 0;
}
