/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/maps.h"

#include <string.h>

#include "base/err.h"

/* Reads hexadecimal or decimal digits up to `end` and steps over it. */
static bool take_number(const char **at, const char *limit, unsigned base, char end, uint64_t *ret)
{
    const char *p = *at;
    uint64_t v = 0;
    const char *first = p;
    for (; p < limit && *p != end; p++) {
        unsigned digit;
        if (*p >= '0' && *p <= '9') {
            digit = (unsigned)(*p - '0');
        } else if (*p >= 'a' && *p <= 'f') {
            digit = (unsigned)(*p - 'a') + 10;
        } else {
            return false;
        }
        if (digit >= base || v > (UINT64_MAX - digit) / base) {
            return false;
        }
        v = v * base + digit;
    }
    if (p == first || p == limit) {
        return false;
    }
    *at = p + 1;
    *ret = v;
    return true;
}

static bool ends_with(const char *s, size_t n, const char *tail, size_t tail_len)
{
    return n >= tail_len && memcmp(s + n - tail_len, tail, tail_len) == 0;
}

int ltn_map_line_parse(const char *line, size_t len, struct ltn_map_line *ret)
{
    static const char deleted[] = " (deleted)";
    struct ltn_map_line m = {0};
    const char *at = line;
    const char *limit = line + len;
    uint64_t major;
    uint64_t minor;
    if (!take_number(&at, limit, 16, '-', &m.start) || !take_number(&at, limit, 16, ' ', &m.end) ||
        limit - at < 5 || at[4] != ' ') {
        return LTN_ERR_MALFORMED;
    }
    m.readable = at[0] == 'r';
    m.executable = at[2] == 'x';
    at += 5;
    if (!take_number(&at, limit, 16, ' ', &m.pgoff_bytes) ||
        !take_number(&at, limit, 16, ':', &major) || !take_number(&at, limit, 16, ' ', &minor) ||
        major > UINT32_MAX || minor > UINT32_MAX || m.start >= m.end) {
        return LTN_ERR_MALFORMED;
    }
    m.dev_major = (uint32_t)major;
    m.dev_minor = (uint32_t)minor;
    /* The inode is followed by blanks and the path, or (anonymous memory) by a blank or nothing. */
    const char *ino_end = memchr(at, ' ', (size_t)(limit - at));
    if (ino_end == NULL) {
        ino_end = limit;
    }
    uint64_t ino = 0;
    for (const char *p = at; p < ino_end; p++) {
        if (*p < '0' || *p > '9' || ino > (UINT64_MAX - 9) / 10) {
            return LTN_ERR_MALFORMED;
        }
        ino = ino * 10 + (uint64_t)(*p - '0');
    }
    if (ino_end == at) {
        return LTN_ERR_MALFORMED;
    }
    m.ino = ino;
    at = ino_end;
    while (at < limit && *at == ' ') {
        at++;
    }
    m.path = at;
    m.path_len = (size_t)(limit - at);
    if (ends_with(m.path, m.path_len, deleted, sizeof(deleted) - 1)) {
        m.deleted = true;
        m.path_len -= sizeof(deleted) - 1;
    }
    *ret = m;
    return 0;
}

bool ltn_maps_next(const char *text, size_t len, size_t *pos, struct ltn_map_line *ret)
{
    while (*pos < len) {
        const char *line = text + *pos;
        const char *end = memchr(line, '\n', len - *pos);
        if (end == NULL) {
            return false;
        }
        *pos = (size_t)(end - text) + 1;
        if (ltn_map_line_parse(line, (size_t)(end - line), ret) == 0) {
            return true;
        }
    }
    return false;
}

const char *ltn_lib_kind_name(enum ltn_lib_kind kind)
{
    static const char *const names[LTN_LIB_KINDS] = {"none", "cudart", "cuda", "nccl", "embedded"};
    return (unsigned)kind < LTN_LIB_KINDS ? names[kind] : "none";
}

static const char *base_name(const char *path, size_t path_len, size_t *ret_len)
{
    const char *slash = memrchr(path, '/', path_len);
    const char *name = slash == NULL ? path : slash + 1;
    *ret_len = path_len - (size_t)(name - path);
    return name;
}

static bool starts_with(const char *s, size_t n, const char *head)
{
    size_t head_len = strlen(head);
    return n >= head_len && memcmp(s, head, head_len) == 0;
}

/* "<stem>.so" or "<stem>.so.<anything>". */
static bool is_library(const char *name, size_t n, const char *stem)
{
    size_t stem_len = strlen(stem);
    if (!starts_with(name, n, stem) || !starts_with(name + stem_len, n - stem_len, ".so")) {
        return false;
    }
    return n == stem_len + 3 || name[stem_len + 3] == '.';
}

/* "libcudart-<hex digits>.so…", as repaired wheels carry it. */
static bool is_vendored(const char *name, size_t n, const char *stem)
{
    size_t i = strlen(stem);
    if (!starts_with(name, n, stem) || i >= n || name[i] != '-') {
        return false;
    }
    size_t first = ++i;
    while (i < n && ((name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f'))) {
        i++;
    }
    return i > first && is_library(name + i, n - i, "");
}

enum ltn_lib_kind ltn_lib_kind_of_path(const char *path, size_t path_len)
{
    size_t n;
    const char *name = base_name(path, path_len, &n);
    if (!starts_with(name, n, "lib")) {
        return LTN_LIB_NONE;
    }
    if (is_library(name, n, "libcudart") || is_vendored(name, n, "libcudart")) {
        return LTN_LIB_CUDART;
    }
    if (is_library(name, n, "libcuda")) {
        return LTN_LIB_CUDA;
    }
    if (is_library(name, n, "libnccl") || is_vendored(name, n, "libnccl")) {
        return LTN_LIB_NCCL;
    }
    return LTN_LIB_NONE;
}

bool ltn_lib_may_embed(const char *path, size_t path_len)
{
    size_t n;
    const char *name = base_name(path, path_len, &n);
    return starts_with(name, n, "libtorch_cuda") && memmem(name, n, ".so", 3) != NULL;
}
