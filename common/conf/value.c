/* SPDX-License-Identifier: Apache-2.0 */
/* The table, and values from text. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conf/internal.h"

const struct ltn_conf_key *ltn_conf_find(const struct ltn_conf_table *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->keys[i].key, key) == 0) {
            return &t->keys[i];
        }
    }
    return NULL;
}

/* Distance to the key, or to its section of as many parts when that is nearer. */
static unsigned distance(const char *known, const char *key)
{
    unsigned best = ltn_edit_distance(known, key);
    char section[LTN_CONF_NAME_BYTES];
    const char *end = known;
    for (const char *dot = strchr(key, '.'); dot != NULL && end != NULL;
         dot = strchr(dot + 1, '.')) {
        end = strchr(end, '.');
        end = end != NULL ? end + 1 : NULL;
    }
    end = end != NULL ? strchr(end, '.') : NULL;
    if (end != NULL && (size_t)(end - known) < sizeof(section)) {
        (void)snprintf(section, sizeof(section), "%.*s", (int)(end - known), known);
        unsigned d = ltn_edit_distance(section, key);
        best = d < best ? d : best;
    }
    return best;
}

const char *ltn_conf_nearest(const struct ltn_conf_table *t, const char *key)
{
    const char *best = "";
    unsigned least = 0;
    for (size_t i = 0; i < t->n; i++) {
        unsigned d = distance(t->keys[i].key, key);
        if (best[0] == '\0' || d < least) {
            best = t->keys[i].key;
            least = d;
        }
    }
    return best;
}

bool ltn_conf_flag_name(const struct ltn_conf_key *k, char out[LTN_CONF_NAME_BYTES])
{
    size_t n = strlen(k->key);
    if (n >= LTN_CONF_NAME_BYTES) {
        return false;
    }
    for (size_t i = 0; i <= n; i++) {
        char c = k->key[i];
        out[i] = c;
        if (c == '_' || c == '.') {
            out[i] = '-';
        }
    }
    return true;
}

bool ltn_conf_env_name(const struct ltn_conf_table *t, const char *key,
                       char out[LTN_CONF_NAME_BYTES])
{
    const char *prefix = t->env_prefix != NULL ? t->env_prefix : "LANTERNE_";
    int n = snprintf(out, LTN_CONF_NAME_BYTES, "%s%s", prefix, key);
    if (n < 0 || n >= LTN_CONF_NAME_BYTES) {
        return false;
    }
    for (char *p = out; *p != '\0'; p++) {
        *p = (char)toupper((unsigned char)*p);
        if (*p == '.') {
            *p = '_';
        }
    }
    return true;
}

static void *field(const struct ltn_conf_key *k, void *target)
{
    return (char *)target + k->offset;
}

/* ---- owned values ---- */

static void free_list(struct ltn_conf_strings *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (struct ltn_conf_strings){0};
}

static int set_string(char **at, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        return -ENOMEM;
    }
    free(*at);
    *at = copy;
    return 0;
}

static int list_add(struct ltn_conf_strings *list, const char *text, size_t n)
{
    if (list->n >= LTN_CONF_MAX_LIST) {
        return LTN_ERR_COUNT;
    }
    char **items = realloc(list->items, (list->n + 1) * sizeof(*items));
    if (items == NULL) {
        return -ENOMEM;
    }
    list->items = items;
    items[list->n] = strndup(text, n);
    if (items[list->n] == NULL) {
        return -ENOMEM;
    }
    list->n++;
    return 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static int list_split(struct ltn_conf_strings *list, const char *text)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        size_t n = strcspn(text, ",");
        const char *from = text;
        size_t len = n;
        while (len > 0 && is_space(*from)) {
            from++;
            len--;
        }
        while (len > 0 && is_space(from[len - 1])) {
            len--;
        }
        if (len > 0) {
            rc = list_add(list, from, len);
        }
        text += n;
        text += *text == ',';
    }
    return rc;
}

static int set_list(struct ltn_conf_strings *at, const struct ltn_conf_text *v)
{
    if (!v->add) {
        free_list(at);
    }
    return v->whole ? list_add(at, v->text, strlen(v->text)) : list_split(at, v->text);
}

int ltn_conf_clear_value(const struct ltn_conf_key *k, void *target)
{
    if (k->type == LTN_CONF_STRINGS) {
        free_list(field(k, target));
        return 0;
    }
    return k->type == LTN_CONF_STRING ? set_string(field(k, target), "") : -EINVAL;
}

/* ---- scalars ---- */

static bool parse_bool(const char *text, bool *ret)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *ret = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool parse_enum(const struct ltn_conf_key *k, const char *text, int *ret)
{
    for (int i = 0; k->names != NULL && k->names[i] != NULL; i++) {
        if (strcmp(k->names[i], text) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static const char *wanted(const struct ltn_conf_key *k, char out[160])
{
    size_t n = 0;
    switch (k->type) {
    case LTN_CONF_BOOL:
        return "true or false";
    case LTN_CONF_U64:
        return "a whole number";
    case LTN_CONF_DOUBLE:
        return "a number";
    case LTN_CONF_DURATION_NS:
        return "a duration like 90s or 1h30m";
    case LTN_CONF_SIZE_BYTES:
        return "a size like 500m or 10g";
    case LTN_CONF_ENUM:
        out[0] = '\0';
        for (int i = 0; k->names != NULL && k->names[i] != NULL && n < 120; i++) {
            n += (size_t)snprintf(out + n, 160 - n, "%s%.30s", i > 0 ? ", " : "one of ",
                                  k->names[i]);
        }
        return out;
    default:
        return "text";
    }
}

static int complain(const struct ltn_conf_key *k, const struct ltn_conf_text *v,
                    struct ltn_errinfo *info)
{
    char want[160];
    char shown[48];
    ltn_text_clean(shown, sizeof(shown), v->text, strlen(v->text));
    return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%s: %s: \"%s\" is not %s", v->source, k->key,
                           shown, wanted(k, want));
}

static int check_range(const struct ltn_conf_key *k, double value, const struct ltn_conf_text *v,
                       struct ltn_errinfo *info)
{
    bool unbounded = !(k->min < 0 || k->min > 0) && !(k->max < 0 || k->max > 0);
    if (unbounded || (value >= k->min && value <= k->max)) {
        return 0;
    }
    const char *unit = k->type == LTN_CONF_DURATION_NS  ? " s"
                       : k->type == LTN_CONF_SIZE_BYTES ? " bytes"
                                                        : "";
    return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%s: %s: %.40s is not between %.15g and %.15g%s",
                           v->source, k->key, v->text, k->min, k->max, unit);
}

static int set_number(const struct ltn_conf_key *k, void *at, const struct ltn_conf_text *v,
                      struct ltn_errinfo *info)
{
    uint64_t u = 0;
    double f = 0;
    bool ok = k->type == LTN_CONF_DOUBLE        ? ltn_parse_f64(v->text, &f) && isfinite(f)
              : k->type == LTN_CONF_DURATION_NS ? ltn_parse_duration_ns(v->text, &u)
              : k->type == LTN_CONF_SIZE_BYTES  ? ltn_parse_size_bytes(v->text, &u)
                                                : ltn_parse_u64(v->text, &u);
    if (!ok) {
        return complain(k, v, info);
    }
    if (k->type != LTN_CONF_DOUBLE) {
        f = k->type == LTN_CONF_DURATION_NS ? (double)u / (double)LTN_NS_PER_S : (double)u;
    }
    int rc = check_range(k, f, v, info);
    if (rc == 0 && k->type == LTN_CONF_DOUBLE) {
        *(double *)at = f;
    } else if (rc == 0) {
        *(uint64_t *)at = u;
    }
    return rc;
}

int ltn_conf_set_value(const struct ltn_conf_key *k, void *target, const struct ltn_conf_text *v,
                       struct ltn_errinfo *info)
{
    void *at = field(k, target);
    int rc = 0;
    bool b;
    int e;
    if ((k->flags & LTN_CONF_NARROWS) != 0 && v->text[0] == '\0' && !v->is_default) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "%s: %s: nothing given; leave it out if no limit is meant",
                               v->source, k->key);
    }
    switch (k->type) {
    case LTN_CONF_BOOL:
        if (!parse_bool(v->text, &b)) {
            return complain(k, v, info);
        }
        *(bool *)at = b;
        return 0;
    case LTN_CONF_ENUM:
        if (!parse_enum(k, v->text, &e)) {
            return complain(k, v, info);
        }
        *(int *)at = e;
        return 0;
    case LTN_CONF_STRING:
        rc = set_string(at, v->text);
        break;
    case LTN_CONF_STRINGS:
        if (!v->whole && v->text[0] != '\0' && v->text[strspn(v->text, ", \t")] == '\0') {
            return complain(k, v, info); /* commas and nothing between them: no empty list meant */
        }
        rc = set_list(at, v);
        break;
    default:
        return set_number(k, at, v, info);
    }
    return rc < 0 ? ltn_errinfo_set(info, rc, "%s: %s: %s", v->source, k->key, ltn_err_str(rc)) : 0;
}

int ltn_conf_set(const struct ltn_conf_table *t, void *target, const char *key, const char *text,
                 const char *source, struct ltn_errinfo *info)
{
    const struct ltn_conf_key *k = ltn_conf_find(t, key);
    if (k == NULL) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "%s: unknown key \"%.60s\"; did you mean \"%s\"?", source, key,
                               ltn_conf_nearest(t, key));
    }
    return ltn_conf_set_value(k, target, &(struct ltn_conf_text){.text = text, .source = source},
                              info);
}

/* ---- the table ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    size_t m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int check_key(const struct ltn_conf_table *t, size_t i, struct ltn_errinfo *info)
{
    const struct ltn_conf_key *k = &t->keys[i];
    char name[LTN_CONF_NAME_BYTES];
    if (k->key[0] == '\0' || k->key[strspn(k->key, "abcdefghijklmnopqrstuvwxyz0123456789_.")]) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "key \"%s\" is not a key", k->key);
    }
    if (!ltn_conf_env_name(t, k->key, name) || ltn_conf_find(t, k->key) != k) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "key \"%s\" is too long or there twice",
                               k->key);
    }
    if (k->type == LTN_CONF_STRING &&
        (ends_with(k->key, "token") || ends_with(k->key, "password") ||
         ends_with(k->key, "secret"))) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "key \"%s\": secrets are given as files",
                               k->key);
    }
    return 0;
}

int ltn_conf_init(const struct ltn_conf_table *t, void *target, struct ltn_errinfo *info)
{
    for (size_t i = 0; i < t->n; i++) {
        /* So that ltn_conf_done is right after a failure half way. */
        const struct ltn_conf_key *k = &t->keys[i];
        if (k->type == LTN_CONF_STRING) {
            *(char **)field(k, target) = NULL;
        } else if (k->type == LTN_CONF_STRINGS) {
            *(struct ltn_conf_strings *)field(k, target) = (struct ltn_conf_strings){0};
        }
    }
    if (t->n > LTN_CONF_MAX_KEYS) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "too many keys");
    }
    for (size_t i = 0; i < t->n; i++) {
        static const char *const zero[] = {
            [LTN_CONF_BOOL] = "false",     [LTN_CONF_U64] = "0",        [LTN_CONF_DOUBLE] = "0",
            [LTN_CONF_DURATION_NS] = "0s", [LTN_CONF_SIZE_BYTES] = "0", [LTN_CONF_STRING] = "",
            [LTN_CONF_ENUM] = "",          [LTN_CONF_STRINGS] = ""};
        const struct ltn_conf_key *k = &t->keys[i];
        int rc = check_key(t, i, info);
        if (rc < 0) {
            return rc;
        }
        const char *text = k->def != NULL ? k->def : zero[k->type];
        if (k->type == LTN_CONF_ENUM && k->def == NULL && k->names != NULL) {
            text = k->names[0];
        }
        rc = ltn_conf_set_value(
            k, target,
            &(struct ltn_conf_text){.text = text, .source = "default", .is_default = true}, info);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

void ltn_conf_done(const struct ltn_conf_table *t, void *target)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct ltn_conf_key *k = &t->keys[i];
        if (k->type == LTN_CONF_STRING) {
            char **at = field(k, target);
            free(*at);
            *at = NULL;
        } else if (k->type == LTN_CONF_STRINGS) {
            free_list(field(k, target));
        }
    }
}
