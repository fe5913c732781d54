/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/name.h"

#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/text.h"

static const struct {
    const char *unit, *word;
} unit_words[] = {
    {"d", "days"},         {"h", "hours"},         {"min", "minutes"},
    {"s", "seconds"},      {"ms", "milliseconds"}, {"us", "microseconds"},
    {"ns", "nanoseconds"}, {"By", "bytes"},        {"KiBy", "kibibytes"},
    {"MiBy", "mebibytes"}, {"GiBy", "gibibytes"},  {"TiBy", "tibibytes"},
    {"KBy", "kilobytes"},  {"kBy", "kilobytes"},   {"MBy", "megabytes"},
    {"GBy", "gigabytes"},  {"TBy", "terabytes"},   {"m", "meters"},
    {"V", "volts"},        {"A", "amperes"},       {"J", "joules"},
    {"W", "watts"},        {"g", "grams"},         {"Cel", "celsius"},
    {"Hz", "hertz"},       {"%", "percent"},       {"1", ""},
};

static const struct {
    const char *unit, *word;
} per_words[] = {
    {"s", "second"}, {"m", "minute"}, {"min", "minute"}, {"h", "hour"},
    {"d", "day"},    {"w", "week"},   {"mo", "month"},   {"y", "year"},
};

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Appends src with every run of other characters made one '_'; none at the ends. */
static bool put_tokens(char *dst, size_t size, size_t *len, struct ltn_prom_text src, bool colon)
{
    bool gap = false, any = false;
    for (size_t i = 0; i < src.n; i++) {
        char c = src.p[i];
        if (!is_word(c) && !(colon && c == ':')) {
            gap = any;
            continue;
        }
        if (*len + 2 >= size)
            return false;
        if (gap)
            dst[(*len)++] = '_';
        dst[(*len)++] = c;
        gap = false;
        any = true;
    }
    dst[*len] = '\0';
    return true;
}

/* Unit without its {annotations}. */
static size_t strip_braces(struct ltn_prom_text unit, char *out, size_t size)
{
    size_t n = 0;
    bool in = false;
    for (size_t i = 0; i < unit.n && n + 1 < size; i++) {
        if (unit.p[i] == '{')
            in = true;
        else if (unit.p[i] == '}')
            in = false;
        else if (!in)
            out[n++] = unit.p[i];
    }
    out[n] = '\0';
    return n;
}

static struct ltn_prom_text unit_word(const char *p, size_t n, bool per)
{
    for (size_t i = 0; !per && i < LTN_ARRAY_SIZE(unit_words); i++)
        if (strlen(unit_words[i].unit) == n && memcmp(unit_words[i].unit, p, n) == 0)
            return (struct ltn_prom_text){unit_words[i].word, strlen(unit_words[i].word)};
    for (size_t i = 0; per && i < LTN_ARRAY_SIZE(per_words); i++)
        if (strlen(per_words[i].unit) == n && memcmp(per_words[i].unit, p, n) == 0)
            return (struct ltn_prom_text){per_words[i].word, strlen(per_words[i].word)};
    return (struct ltn_prom_text){p, n};
}

/* "By/s" -> "bytes_per_second" */
static bool unit_suffix(struct ltn_prom_text unit, char out[LTN_PROM_NAME_BYTES])
{
    char plain[64];
    size_t n = strip_braces(unit, plain, sizeof(plain)), len = 0;
    out[0] = '\0';
    char *slash = memchr(plain, '/', n);
    size_t head = slash != NULL ? (size_t)(slash - plain) : n;
    if (!put_tokens(out, LTN_PROM_NAME_BYTES, &len, unit_word(plain, head, false), false))
        return false;
    if (slash == NULL || head + 1 >= n)
        return true;
    const char *join = len > 0 ? "_per_" : "per_";
    memcpy(out + len, join, strlen(join) + 1);
    len += strlen(join);
    return put_tokens(out, LTN_PROM_NAME_BYTES, &len,
                      unit_word(plain + head + 1, n - head - 1, true), false);
}

static bool has_tail(const char *s, size_t n, const char *tail)
{
    size_t k = strlen(tail);
    return n == k ? memcmp(s, tail, k) == 0
                  : n > k && s[n - k - 1] == '_' && memcmp(s + n - k, tail, k) == 0;
}

static bool add_tail(char *s, size_t *len, const char *tail)
{
    size_t k = strlen(tail);
    if (k == 0 || has_tail(s, *len, tail))
        return true;
    if (*len + k + 2 > LTN_PROM_NAME_BYTES)
        return false;
    s[(*len)++] = '_';
    memcpy(s + *len, tail, k + 1);
    *len += k;
    return true;
}

bool ltn_prom_metric_name(struct ltn_prom_text name, struct ltn_prom_text unit,
                          enum ltn_prom_type type, char ret[LTN_PROM_NAME_BYTES],
                          char ret_unit[LTN_PROM_NAME_BYTES])
{
    char suffix[LTN_PROM_NAME_BYTES];
    size_t len = 0;
    ret[0] = '\0';
    if (!put_tokens(ret, LTN_PROM_NAME_BYTES, &len, name, true) || len == 0 ||
        len + 2 > LTN_PROM_NAME_BYTES || !unit_suffix(unit, suffix))
        return false;
    if (ret[0] >= '0' && ret[0] <= '9') {
        memmove(ret + 1, ret, len + 1);
        ret[0] = '_';
        len++;
    }
    if (type == LTN_PROM_COUNTER && has_tail(ret, len, "total") && len > 6) {
        len -= 6;
        ret[len] = '\0';
    }
    bool one = unit.n == 1 && unit.p[0] == '1';
    if (one && type == LTN_PROM_GAUGE)
        (void)ltn_copy_str(suffix, sizeof(suffix), "ratio");
    if (!add_tail(ret, &len, suffix))
        return false;
    if (ret_unit != NULL)
        memcpy(ret_unit, suffix, sizeof(suffix));
    return type != LTN_PROM_COUNTER || add_tail(ret, &len, "total");
}

bool ltn_prom_label_name(struct ltn_prom_text key, char ret[LTN_PROM_NAME_BYTES])
{
    static const char *const taken[] = {"le", "quantile", "job", "instance"};
    size_t len = 0;
    bool gap = false;
    char plain[LTN_PROM_NAME_BYTES];
    for (size_t i = 0; i < key.n && len + 1 < sizeof(plain); i++) {
        if (is_word(key.p[i])) {
            plain[len++] = key.p[i];
            gap = false;
        } else if (!gap) {
            plain[len++] = '_';
            gap = true;
        }
    }
    plain[len] = '\0';
    if (key.n == 0 || len > LTN_PROM_NAME_BYTES - 16)
        return false;
    const char *prefix = plain[0] >= '0' && plain[0] <= '9' ? "key_" : "";
    for (size_t i = 0; i < LTN_ARRAY_SIZE(taken); i++)
        if (strcmp(plain, taken[i]) == 0)
            prefix = "exported_";
    size_t k = strlen(prefix);
    memcpy(ret, prefix, k);
    memcpy(ret + k, plain, len + 1);
    return true;
}

size_t ltn_prom_claims(const char *family, enum ltn_prom_type type,
                       char ret[LTN_PROM_CLAIMS][LTN_PROM_CLAIM_BYTES])
{
    static const char *const suffixes[][LTN_PROM_CLAIMS] = {
        [LTN_PROM_COUNTER] = {"", "_total", "_created"},
        [LTN_PROM_GAUGE] = {""},
        [LTN_PROM_HISTOGRAM] = {"", "_bucket", "_sum", "_count", "_created"},
        [LTN_PROM_UNKNOWN] = {""},
        [LTN_PROM_SUMMARY] = {"", "_sum", "_count", "_created"},
        [LTN_PROM_INFO] = {"", "_info"},
    };
    const char *own = type == LTN_PROM_COUNTER ? "_total" : type == LTN_PROM_INFO ? "_info" : "";
    size_t len = strlen(family), k = strlen(own), n = 0;
    if (len > k && strcmp(family + len - k, own) == 0)
        len -= k;
    for (; n < LTN_PROM_CLAIMS && suffixes[type][n] != NULL; n++)
        (void)snprintf(ret[n], LTN_PROM_CLAIM_BYTES, "%.*s%s", (int)len, family, suffixes[type][n]);
    return n;
}
