/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes as Prometheus labels. */
#include "ingest/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "otlp/value_json.h"
#include "prom/expo.h"
#include "prom/name.h"

struct label {
    char name[LTN_PROM_NAME_BYTES];
    char value[LTN_LABELS_VALUE_BYTES];
    size_t order;
};

struct label_set {
    struct label items[LTN_LABELS_MAX];
    size_t n;
};

static _Thread_local struct label_set scratch;

/* Identities that make a series for each process or request, or that are said elsewhere. */
static bool unwanted(struct ltn_otlp_str key)
{
    static const char *const keys[] = {"process.pid", "thread.id", "lanterne.preemptor.pid",
                                       "lanterne.comm.id"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(keys); i++)
        if (ltn_otlp_str_eq(key, keys[i]))
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

/* Text of a label value: strings as they are, bytes in base64, all else as JSON; cut to its room.
 */
static void value_text(const struct ltn_otlp_value *v, char out[LTN_LABELS_VALUE_BYTES])
{
    struct ltn_buf b;
    bool bytes = v->type == LTN_OTLP_BYTES;
    if (!bytes && v->type != LTN_OTLP_ARRAY && v->type != LTN_OTLP_KVLIST) {
        (void)ltn_otlp_value_text(v, out, LTN_LABELS_VALUE_BYTES);
        return;
    }
    ltn_buf_init(&b, 2 * (size_t)LTN_LABELS_VALUE_BYTES);
    struct ltn_json j;
    uint32_t cut = 0;
    ltn_json_init(&j, &b);
    (void)!ltn_otlp_value_json(&j, v, LTN_LABELS_VALUE_BYTES, &cut); /* what did not fit is cut */
    const char *text = ltn_buf_str(&b);
    size_t n = b.len;
    if (bytes && n >= 2) { /* without the quotes */
        text++;
        n -= text[n - 2] == '"' ? 2 : 1;
    }
    ltn_text_clean(out, LTN_LABELS_VALUE_BYTES, text, n);
    ltn_buf_done(&b);
}

static void add_attrs(struct label_set *set, struct ltn_otlp_attrs attrs)
{
    for (size_t i = 0; i < attrs.n && set->n < LTN_LABELS_MAX; i++) {
        const struct ltn_otlp_attr *a = &attrs.items[i];
        struct label *l = &set->items[set->n];
        if (unwanted(a->key) ||
            !ltn_prom_label_name((struct ltn_prom_text){a->key.p, a->key.n}, l->name))
            continue;
        value_text(&a->value, l->value);
        l->order = set->n++;
    }
}

/* Appends them sorted; values of one name are joined in the order of their keys. */
static void put_set(struct ltn_buf *out, struct label_set *set)
{
    qsort(set->items, set->n, sizeof(*set->items), by_name);
    for (size_t i = 0; i < set->n; i++) {
        const struct label *first = &set->items[i];
        char joined[2 * LTN_LABELS_VALUE_BYTES];
        size_t len = strlen(first->value);
        memcpy(joined, first->value, len);
        while (i + 1 < set->n && strcmp(set->items[i + 1].name, first->name) == 0) {
            size_t k = strlen(set->items[++i].value);
            if (len + k + 1 >= sizeof(joined))
                continue;
            joined[len++] = ';';
            memcpy(joined + len, set->items[i].value, k);
            len += k;
        }
        if (out->len > 0)
            (void)ltn_buf_putc(out, ',');
        ltn_prom_put_label(out, first->name, joined, len);
    }
}

/* Keys in their order decide in which values are joined. */
static void sort_by_key(struct ltn_otlp_attr *items, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct ltn_otlp_attr a = items[i];
        size_t k = i;
        for (; k > 0; k--) {
            struct ltn_otlp_str x = items[k - 1].key, y = a.key;
            size_t m = x.n < y.n ? x.n : y.n;
            int c = m > 0 ? memcmp(x.p, y.p, m) : 0;
            if (c < 0 || (c == 0 && x.n <= y.n))
                break;
            items[k] = items[k - 1];
        }
        items[k] = a;
    }
}

void ltn_labels_put_point(struct ltn_buf *out, struct ltn_otlp_attrs attrs, bool agent)
{
    struct ltn_otlp_attr sorted[LTN_LABELS_MAX];
    size_t n = attrs.n < LTN_LABELS_MAX ? attrs.n : LTN_LABELS_MAX, kept = 0;
    if (n > 0)
        memcpy(sorted, attrs.items, n * sizeof(*sorted));
    sort_by_key(sorted, n);
    scratch.n = 0;
    add_attrs(&scratch, (struct ltn_otlp_attrs){sorted, n});
    for (size_t i = 0; i < scratch.n; i++) {
        struct label *l = &scratch.items[i];
        if (strncmp(l->name, "otel_scope_", 11) == 0)
            continue; /* the scope says it */
        if (agent && strcmp(l->name, "node") == 0)
            (void)ltn_copy_str(l->name, sizeof(l->name), "exported_node");
        if (kept != i)
            scratch.items[kept] = *l;
        kept++;
    }
    scratch.n = kept;
    put_set(out, &scratch);
}

static void add_scope(struct label_set *set, const char *name, struct ltn_otlp_str value)
{
    struct label *l = &set->items[set->n];
    if (value.n == 0 || set->n == LTN_LABELS_MAX)
        return;
    (void)ltn_copy_str(l->name, sizeof(l->name), name);
    ltn_text_clean(l->value, sizeof(l->value), value.p, value.n);
    l->order = set->n++;
}

void ltn_labels_put_scope(struct ltn_buf *out, const struct ltn_otlp_group *g)
{
    size_t kept = 0;
    scratch.n = 0;
    add_attrs(&scratch, g->scope_attrs);
    for (size_t i = 0; i < scratch.n; i++) {
        struct label *l = &scratch.items[i];
        char name[LTN_PROM_NAME_BYTES];
        const char *plain = strncmp(l->name, "exported_", 9) == 0 ? l->name + 9 : l->name;
        bool taken = strcmp(plain, "name") == 0 || strcmp(plain, "version") == 0 ||
                     strcmp(plain, "schema_url") == 0;
        if (taken || strlen(plain) + 12 > sizeof(name))
            continue; /* the scope's own fields go before */
        memcpy(name, "otel_scope_", 11);
        (void)ltn_copy_str(name + 11, sizeof(name) - 11, plain);
        if (kept != i)
            scratch.items[kept] = *l;
        (void)ltn_copy_str(scratch.items[kept].name, sizeof(name), name);
        kept++;
    }
    scratch.n = kept;
    add_scope(&scratch, "otel_scope_name", g->scope_name);
    add_scope(&scratch, "otel_scope_version", g->scope_version);
    add_scope(&scratch, "otel_scope_schema_url", g->scope_schema_url);
    put_set(out, &scratch);
}

static size_t runes(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80 ? 1 : 0;
    return n;
}

static size_t put_hex(struct ltn_buf *out, const char *name, struct ltn_otlp_str id)
{
    char hex[2 * 16 + 1];
    if (id.n == 0 || 2 * id.n >= sizeof(hex))
        return 0;
    for (size_t i = 0; i < id.n; i++) {
        static const char digits[] = "0123456789abcdef";
        hex[2 * i] = digits[(unsigned char)id.p[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)id.p[i] & 15];
    }
    if (out->len > 0)
        (void)ltn_buf_putc(out, ',');
    ltn_prom_put_label(out, name, hex, 2 * id.n);
    return strlen(name) + 2 * id.n;
}

void ltn_labels_put_exemplar(struct ltn_buf *out, const struct ltn_otlp_exemplar *e)
{
    size_t used = put_hex(out, "trace_id", e->trace_id);
    used += put_hex(out, "span_id", e->span_id);
    scratch.n = 0;
    add_attrs(&scratch, e->attrs);
    for (size_t i = 0; i < scratch.n; i++) {
        const struct label *l = &scratch.items[i];
        size_t n = runes(l->name) + runes(l->value);
        bool again = strcmp(l->name, "trace_id") == 0 || strcmp(l->name, "span_id") == 0;
        for (size_t k = 0; k < i; k++)
            again = again || strcmp(scratch.items[k].name, l->name) == 0;
        if (again || used + n > LTN_PROM_EXEMPLAR_RUNES)
            continue;
        used += n;
        if (out->len > 0)
            (void)ltn_buf_putc(out, ',');
        ltn_prom_put_label(out, l->name, l->value, strlen(l->value));
    }
}
