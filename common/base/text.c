/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"

size_t ltn_utf8_len(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n < len) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] >= 0xa0;
    bool above_max = p[0] == 0xf4 && p[1] >= 0x90;
    return overlong || surrogate || above_max ? 0 : len;
}

bool ltn_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = ltn_utf8_len(s + i, n - i);
        if (len == 0) {
            return false;
        }
        i += len;
    }
    return true;
}

bool ltn_parse_u64(const char *s, uint64_t *ret)
{
    if (!isdigit((unsigned char)s[0])) {
        return false;
    }
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *ret = v;
    return true;
}

bool ltn_parse_i64(const char *s, int64_t *ret)
{
    if (!isdigit((unsigned char)s[0]) && !(s[0] == '-' && isdigit((unsigned char)s[1]))) {
        return false;
    }
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *ret = v;
    return true;
}

bool ltn_parse_f64(const char *s, double *ret)
{
    if (s[0] == '\0' || isspace((unsigned char)s[0])) {
        return false;
    }
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (*end != '\0' || end == s || !isfinite(v) || strpbrk(s, "xX") != NULL) {
        return false;
    }
    *ret = v;
    return true;
}

struct unit {
    const char *name;
    uint64_t ns;
};

static const struct unit units[] = {
    {"ns", 1},
    {"us", LTN_NS_PER_US},
    {"ms", LTN_NS_PER_MS},
    {"s", LTN_NS_PER_S},
    {"m", 60 * LTN_NS_PER_S},
    {"h", 3600 * LTN_NS_PER_S},
    {"d", 86400 * LTN_NS_PER_S},
    {"w", 604800 * LTN_NS_PER_S},
};

static bool unit_ns(const char *s, size_t n, uint64_t *ret)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(units); i++) {
        if (strlen(units[i].name) == n && memcmp(units[i].name, s, n) == 0) {
            *ret = units[i].ns;
            return true;
        }
    }
    return false;
}

/* Length of the plain decimal number at s, such as 1 or 1.5; 0 when there is none. */
static size_t decimal_len(const char *s)
{
    static const char digits[] = "0123456789";
    size_t n = strspn(s, digits);
    if (n > 0 && s[n] == '.') {
        size_t fraction = strspn(s + n + 1, digits);
        return fraction > 0 ? n + 1 + fraction : 0;
    }
    return n;
}

bool ltn_parse_duration_ns(const char *s, uint64_t *ret_ns)
{
    uint64_t total = 0;
    if (*s == '\0') {
        return false;
    }
    while (*s != '\0') {
        char *end;
        double v = strtod(s, &end);
        if (end == s || end != s + decimal_len(s)) {
            return false;
        }
        size_t n = 0;
        while (isalpha((unsigned char)end[n])) {
            n++;
        }
        uint64_t factor = LTN_NS_PER_S;
        if (n > 0 && !unit_ns(end, n, &factor)) {
            return false;
        }
        double part = v * (double)factor;
        if (part > 9.2e18 || __builtin_add_overflow(total, (uint64_t)(part + 0.5), &total)) {
            return false;
        }
        s = end + n;
        if (n == 0 && *s != '\0') {
            return false;
        }
    }
    if (total > INT64_MAX) {
        return false;
    }
    *ret_ns = total;
    return true;
}

bool ltn_parse_size_bytes(const char *s, uint64_t *ret_bytes)
{
    char *end;
    if (!isdigit((unsigned char)s[0])) {
        return false;
    }
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno != 0) {
        return false;
    }
    static const char letters[] = "kmgt";
    unsigned shift = 0;
    const char *at = *end != '\0' ? strchr(letters, tolower((unsigned char)*end)) : NULL;
    if (at != NULL) {
        shift = 10U * (unsigned)(at - letters + 1);
        end++;
        if (end[0] == 'i' && tolower((unsigned char)end[1]) == 'b') {
            end++;
        }
    }
    if (tolower((unsigned char)*end) == 'b') {
        end++;
    }
    if (*end != '\0' || (shift > 0 && v > (UINT64_MAX >> shift))) {
        return false;
    }
    *ret_bytes = (uint64_t)v << shift;
    return true;
}

/* C0, DEL and C1 (U+0080..U+009F), which terminals obey as well. */
/* Marks that turn the direction of text: U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. What
 * is shown would not be what is there. */
static bool is_bidi(const unsigned char *p, size_t len)
{
    if (len != 3 || p[0] != 0xe2 || (p[1] != 0x80 && p[1] != 0x81))
        return false;
    if (p[1] == 0x80)
        return p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xaa && p[2] <= 0xae);
    return p[2] >= 0xa6 && p[2] <= 0xa9;
}

static bool is_control(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    if (is_bidi(p, len))
        return true;
    return len == 1 ? p[0] < 0x20 || p[0] == 0x7f : len == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

void ltn_text_clean(char *dst, size_t size, const char *src, size_t src_len)
{
    size_t out = 0;
    for (size_t i = 0; i < src_len && src[i] != '\0';) {
        size_t len = ltn_utf8_len(src + i, src_len - i);
        bool bad = len == 0 || is_control(src + i, len);
        size_t need = bad ? 1 : len;
        if (out + need >= size) {
            break;
        }
        if (bad) {
            dst[out] = '?';
        } else {
            memcpy(dst + out, src + i, len);
        }
        out += need;
        i += len == 0 ? 1 : len;
    }
    dst[out] = '\0';
}

bool ltn_copy_str(char *dst, size_t size, const char *src)
{
    size_t n = strnlen(src, size);
    bool fits = n < size;
    if (!fits) {
        n = size - 1;
    }
    memcpy(dst, src, n);
    dst[n] = '\0';
    return fits;
}

#define EDIT_MAX 64

unsigned ltn_edit_distance(const char *a, const char *b)
{
    size_t na = strnlen(a, EDIT_MAX);
    size_t nb = strnlen(b, EDIT_MAX);
    unsigned row[EDIT_MAX + 1];
    for (size_t i = 0; i <= nb; i++) {
        row[i] = (unsigned)i;
    }
    for (size_t i = 1; i <= na; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t k = 1; k <= nb; k++) {
            unsigned best = diagonal + (a[i - 1] != b[k - 1]);
            diagonal = row[k];
            if (row[k] + 1 < best) {
                best = row[k] + 1;
            }
            if (row[k - 1] + 1 < best) {
                best = row[k - 1] + 1;
            }
            row[k] = best;
        }
    }
    return row[nb];
}
