/* SPDX-License-Identifier: Apache-2.0 */
/* --help and --dump-config. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "conf/internal.h"

#define HELP_COLUMN 32

static const char *value_name(const struct ltn_conf_key *k)
{
    static const char *const names[] = {
        [LTN_CONF_BOOL] = "",           [LTN_CONF_U64] = "N",
        [LTN_CONF_DOUBLE] = "NUMBER",   [LTN_CONF_DURATION_NS] = "DURATION",
        [LTN_CONF_SIZE_BYTES] = "SIZE", [LTN_CONF_STRING] = "TEXT",
        [LTN_CONF_ENUM] = "",           [LTN_CONF_STRINGS] = "LIST"};
    return k->arg != NULL ? k->arg : names[k->type];
}

static void put_enum(const struct ltn_conf_key *k, struct ltn_buf *out)
{
    for (int i = 0; k->names != NULL && k->names[i] != NULL; i++) {
        (void)ltn_buf_printf(out, "%s%s", i > 0 ? "|" : "", k->names[i]);
    }
}

static void put_key_help(const struct ltn_conf_key *k, struct ltn_buf *out)
{
    char flag[LTN_CONF_NAME_BYTES];
    if (!ltn_conf_flag_name(k, flag)) {
        return;
    }
    size_t start = out->len;
    if (k->letter != 0) {
        (void)ltn_buf_printf(out, "  -%c, --%s", k->letter, flag);
    } else {
        (void)ltn_buf_printf(out, "      --%s", flag);
    }
    if (k->type == LTN_CONF_ENUM && k->arg == NULL) {
        (void)ltn_buf_putc(out, ' ');
        put_enum(k, out);
    } else if (value_name(k)[0] != '\0') {
        (void)ltn_buf_printf(out, " %s", value_name(k));
    }
    size_t width = out->len - start;
    if (width + 2 > HELP_COLUMN) {
        (void)ltn_buf_printf(out, "\n%*s", HELP_COLUMN, "");
    } else {
        (void)ltn_buf_printf(out, "%*s", (int)(HELP_COLUMN - width), "");
    }
    (void)ltn_buf_puts(out, k->doc != NULL ? k->doc : "");
    if (k->def != NULL && k->def[0] != '\0' &&
        !(k->type == LTN_CONF_BOOL && strcmp(k->def, "false") == 0)) {
        (void)ltn_buf_printf(out, " (default %s)", k->def);
    }
    (void)ltn_buf_putc(out, '\n');
}

int ltn_conf_help(const struct ltn_conf_table *t, struct ltn_buf *out)
{
    static const struct {
        const char *flag;
        const char *doc;
    } fixed[] = {{"      --config FILE", "Read the configuration from FILE (YAML)."},
                 {"      --dump-config", "Print the configuration in effect and end."},
                 {"  -h, --help", "Print this and end."}};
    for (size_t i = 0; i < t->n; i++) {
        if ((t->keys[i].flags & LTN_CONF_HIDDEN) == 0) {
            put_key_help(&t->keys[i], out);
        }
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(fixed); i++) {
        (void)ltn_buf_printf(out, "%-*s%s\n", HELP_COLUMN, fixed[i].flag, fixed[i].doc);
    }
    return ltn_buf_error(out);
}

/* ---- dump ---- */

struct unit {
    uint64_t size;
    const char *name;
};

static void put_units(struct ltn_buf *out, uint64_t v, const struct unit *units, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (v != 0 && v % units[i].size == 0) {
            (void)ltn_buf_printf(out, "%" PRIu64 "%s", v / units[i].size, units[i].name);
            return;
        }
    }
    (void)ltn_buf_printf(out, "%" PRIu64 "%s", v, units[n - 1].name);
}

static void put_text(struct ltn_buf *out, const char *s)
{
    struct ltn_json j;
    ltn_json_init(&j, out);
    ltn_json_str(&j, s != NULL ? s : "");
}

static void put_list(struct ltn_buf *out, const struct ltn_conf_strings *list)
{
    (void)ltn_buf_putc(out, '[');
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) {
            (void)ltn_buf_puts(out, ", ");
        }
        put_text(out, list->items[i]);
    }
    (void)ltn_buf_putc(out, ']');
}

static void put_value(const struct ltn_conf_key *k, const void *target, struct ltn_buf *out)
{
    static const struct unit durations[] = {{7ULL * 86400 * LTN_NS_PER_S, "w"},
                                            {86400ULL * LTN_NS_PER_S, "d"},
                                            {3600ULL * LTN_NS_PER_S, "h"},
                                            {60ULL * LTN_NS_PER_S, "m"},
                                            {LTN_NS_PER_S, "s"},
                                            {LTN_NS_PER_MS, "ms"},
                                            {LTN_NS_PER_US, "us"},
                                            {1, "ns"}};
    static const struct unit sizes[] = {
        {1ULL << 30, "g"}, {1ULL << 20, "m"}, {1ULL << 10, "k"}, {1, ""}};
    const void *at = (const char *)target + k->offset;
    switch (k->type) {
    case LTN_CONF_BOOL:
        (void)ltn_buf_puts(out, *(const bool *)at ? "true" : "false");
        break;
    case LTN_CONF_U64:
        (void)ltn_buf_printf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case LTN_CONF_DOUBLE:
        (void)ltn_buf_printf(out, "%.17g", *(const double *)at);
        break;
    case LTN_CONF_DURATION_NS:
        put_units(out, *(const uint64_t *)at, durations, LTN_ARRAY_SIZE(durations));
        break;
    case LTN_CONF_SIZE_BYTES:
        put_units(out, *(const uint64_t *)at, sizes, LTN_ARRAY_SIZE(sizes));
        break;
    case LTN_CONF_STRING:
        put_text(out, *(char *const *)at);
        break;
    case LTN_CONF_ENUM:
        put_text(out, k->names[*(const int *)at]);
        break;
    case LTN_CONF_STRINGS:
        put_list(out, at);
        break;
    }
}

static size_t section_len(const char *key)
{
    const char *dot = strchr(key, '.');
    return dot != NULL ? (size_t)(dot - key) : 0;
}

static bool same_section(const char *a, const char *b)
{
    size_t n = section_len(a);
    return n > 0 && n == section_len(b) && strncmp(a, b, n) == 0;
}

static void put_line(const struct ltn_conf_key *k, const void *target, struct ltn_buf *out)
{
    size_t n = section_len(k->key);
    const char *indent = n > 0 ? "  " : "";
    if (k->doc != NULL) {
        (void)ltn_buf_printf(out, "%s# %s\n", indent, k->doc);
    }
    (void)ltn_buf_printf(out, "%s%s: ", indent, k->key + (n > 0 ? n + 1 : 0));
    put_value(k, target, out);
    (void)ltn_buf_putc(out, '\n');
}

/* Keys of a section stand together, at the place of its first key. */
static void put_section(const struct ltn_conf_table *t, size_t first, const void *target,
                        struct ltn_buf *out)
{
    const char *key = t->keys[first].key;
    for (size_t i = 0; i < first; i++) {
        if (same_section(t->keys[i].key, key) && (t->keys[i].flags & LTN_CONF_FLAG_ONLY) == 0) {
            return;
        }
    }
    (void)ltn_buf_printf(out, "%.*s:\n", (int)section_len(key), key);
    for (size_t i = first; i < t->n; i++) {
        if (same_section(t->keys[i].key, key) && (t->keys[i].flags & LTN_CONF_FLAG_ONLY) == 0) {
            put_line(&t->keys[i], target, out);
        }
    }
}

int ltn_conf_dump(const struct ltn_conf_table *t, const void *target, struct ltn_buf *out)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct ltn_conf_key *k = &t->keys[i];
        if ((k->flags & LTN_CONF_FLAG_ONLY) != 0) {
            continue;
        }
        if (section_len(k->key) > 0) {
            put_section(t, i, target, out);
        } else {
            put_line(k, target, out);
        }
    }
    return ltn_buf_error(out);
}
