/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML file, read event by event. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/file.h"
#include "base/text.h"
#include "conf/internal.h"

#define MAX_FILE_BYTES   (1U << 20)
#define MAX_SCALAR_BYTES (64U << 10)
#define MAX_DEPTH        16

struct reader {
    const struct ltn_conf_table *t;
    void *target;
    const char *name;
    struct ltn_errinfo *info;
    bool *seen; /* one per key */
    char path[LTN_CONF_NAME_BYTES];
    size_t path_len[MAX_DEPTH];      /* length of path outside each open mapping */
    unsigned depth;                  /* open mappings */
    bool want_value;                 /* path ends in a key whose value comes next */
    const struct ltn_conf_key *list; /* list being filled */
    size_t list_len;
    unsigned documents;
};

static int complain(struct reader *r, const yaml_event_t *e, const char *what, const char *detail)
{
    char shown[64];
    ltn_text_clean(shown, sizeof(shown), detail, strlen(detail));
    return ltn_errinfo_set(r->info, LTN_ERR_CONFIG, "%s:%zu:%zu: %s%s%s%s", r->name,
                           e->start_mark.line + 1, e->start_mark.column + 1, what,
                           shown[0] != '\0' ? " \"" : "", shown, shown[0] != '\0' ? "\"" : "");
}

static int complain_unknown(struct reader *r, const yaml_event_t *e)
{
    char shown[64];
    ltn_text_clean(shown, sizeof(shown), r->path, strlen(r->path));
    return ltn_errinfo_set(
        r->info, LTN_ERR_CONFIG, "%s:%zu:%zu: unknown key \"%s\"; did you mean \"%s\"?", r->name,
        e->start_mark.line + 1, e->start_mark.column + 1, shown, ltn_conf_nearest(r->t, r->path));
}

static int push_key(struct reader *r, const yaml_event_t *e, const char *key, size_t n)
{
    size_t len = strlen(r->path);
    if (memchr(key, '\0', n) != NULL || n == 0 || len + n + 2 > sizeof(r->path)) {
        return complain(r, e, "key is empty, too long or holds a NUL", "");
    }
    (void)snprintf(r->path + len, sizeof(r->path) - len, "%s%.*s", len > 0 ? "." : "", (int)n, key);
    r->want_value = true;
    return 0;
}

static void pop_key(struct reader *r)
{
    r->path[r->depth > 0 ? r->path_len[r->depth - 1] : 0] = '\0';
    r->want_value = false;
}

/* The key that the path names, marked as seen. */
static int take_key(struct reader *r, const yaml_event_t *e, const struct ltn_conf_key **ret)
{
    const struct ltn_conf_key *k = ltn_conf_find(r->t, r->path);
    if (k == NULL || (k->flags & LTN_CONF_FLAG_ONLY) != 0) {
        return complain_unknown(r, e);
    }
    if (r->seen[k - r->t->keys]) {
        return complain(r, e, "key is there twice:", k->key);
    }
    r->seen[k - r->t->keys] = true;
    *ret = k;
    return 0;
}

static bool is_null(const yaml_event_t *e)
{
    const char *v = (const char *)e->data.scalar.value;
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (v[0] == '\0' || strcmp(v, "~") == 0 || strcmp(v, "null") == 0);
}

static int set_scalar(struct reader *r, const yaml_event_t *e)
{
    char source[320];
    const struct ltn_conf_key *k = r->list;
    (void)snprintf(source, sizeof(source), "%.200s:%zu:%zu", r->name, e->start_mark.line + 1,
                   e->start_mark.column + 1);
    int rc = 0;
    bool in_list = k != NULL;
    if (in_list && r->list_len++ >= LTN_CONF_MAX_LIST) {
        return complain(r, e, "list is too long", "");
    }
    if (!in_list) {
        rc = take_key(r, e, &k);
    }
    if (rc < 0) {
        return rc;
    }
    if (is_null(e) && !in_list) {
        return 0; /* keeps the default */
    }
    return ltn_conf_set_value(k, r->target,
                              &(struct ltn_conf_text){.text = (const char *)e->data.scalar.value,
                                                      .source = source,
                                                      .add = in_list,
                                                      .whole = in_list},
                              r->info);
}

static int on_scalar(struct reader *r, const yaml_event_t *e)
{
    size_t n = e->data.scalar.length;
    const char *value = (const char *)e->data.scalar.value;
    if (e->data.scalar.anchor != NULL || (e->data.scalar.tag != NULL)) {
        return complain(r, e, "anchors and tags are not allowed", "");
    }
    if (n > MAX_SCALAR_BYTES || memchr(value, '\0', n) != NULL) {
        return complain(r, e, "value is too long or holds a NUL", "");
    }
    if (r->depth == 0) {
        /* An empty document, comments only, is fine. */
        return is_null(e) ? 0 : complain(r, e, "the file is not a mapping of keys", "");
    }
    if (!r->want_value && r->list == NULL) {
        return push_key(r, e, value, n);
    }
    int rc = set_scalar(r, e);
    if (rc == 0 && r->list == NULL) {
        pop_key(r);
    }
    return rc;
}

static bool is_section(const struct reader *r)
{
    size_t n = strlen(r->path);
    for (size_t i = 0; i < r->t->n; i++) {
        if (strncmp(r->t->keys[i].key, r->path, n) == 0 && r->t->keys[i].key[n] == '.') {
            return true;
        }
    }
    return false;
}

static int on_mapping_start(struct reader *r, const yaml_event_t *e)
{
    if (e->data.mapping_start.anchor != NULL || e->data.mapping_start.tag != NULL) {
        return complain(r, e, "anchors and tags are not allowed", "");
    }
    if (r->list != NULL || (r->depth > 0 && !r->want_value)) {
        return complain(r, e, "a mapping does not belong here", "");
    }
    if (r->depth > 0 && !is_section(r)) {
        return ltn_conf_find(r->t, r->path) != NULL
                   ? complain(r, e, "a value is expected, not a mapping:", r->path)
                   : complain_unknown(r, e);
    }
    if (r->depth == MAX_DEPTH) {
        return complain(r, e, "nesting too deep", "");
    }
    r->path_len[r->depth++] = strlen(r->path);
    r->want_value = false;
    return 0;
}

static int on_mapping_end(struct reader *r)
{
    r->depth--;
    pop_key(r);
    return 0;
}

static int on_sequence_start(struct reader *r, const yaml_event_t *e)
{
    if (e->data.sequence_start.anchor != NULL || e->data.sequence_start.tag != NULL) {
        return complain(r, e, "anchors and tags are not allowed", "");
    }
    if (r->depth == 0 || r->list != NULL || !r->want_value) {
        return complain(r, e, "a list does not belong here", "");
    }
    const struct ltn_conf_key *k = NULL;
    int rc = take_key(r, e, &k);
    if (rc < 0) {
        return rc;
    }
    if (k->type != LTN_CONF_STRINGS) {
        return complain(r, e, "one value is expected, not a list:", k->key);
    }
    r->list = k;
    r->list_len = 0;
    return ltn_conf_clear_value(k, r->target);
}

static int on_event(struct reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->documents++ == 0 ? 0 : complain(r, e, "only one document is allowed", "");
    case YAML_SCALAR_EVENT:
        return on_scalar(r, e);
    case YAML_MAPPING_START_EVENT:
        return on_mapping_start(r, e);
    case YAML_MAPPING_END_EVENT:
        return on_mapping_end(r);
    case YAML_SEQUENCE_START_EVENT:
        return on_sequence_start(r, e);
    case YAML_SEQUENCE_END_EVENT:
        r->list = NULL;
        pop_key(r);
        return 0;
    case YAML_ALIAS_EVENT:
        return complain(r, e, "aliases are not allowed", "");
    default:
        return 0;
    }
}

static int run(struct reader *r, yaml_parser_t *p)
{
    for (;;) {
        yaml_event_t e;
        if (yaml_parser_parse(p, &e) == 0) {
            return ltn_errinfo_set(r->info, LTN_ERR_CONFIG, "%s:%zu:%zu: %s", r->name,
                                   p->problem_mark.line + 1, p->problem_mark.column + 1,
                                   p->problem != NULL ? p->problem : "not YAML");
        }
        bool end = e.type == YAML_STREAM_END_EVENT;
        int rc = on_event(r, &e);
        yaml_event_delete(&e);
        if (rc < 0 || end) {
            return rc;
        }
    }
}

int ltn_conf_load_yaml(const struct ltn_conf_table *t, void *target, const char *text, size_t n,
                       const char *name, struct ltn_errinfo *info)
{
    if (n > MAX_FILE_BYTES) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%s: longer than %u bytes", name,
                               MAX_FILE_BYTES);
    }
    yaml_parser_t parser;
    struct reader r = {.t = t, .target = target, .name = name, .info = info};
    r.seen = calloc(t->n + 1, sizeof(*r.seen));
    if (r.seen == NULL || yaml_parser_initialize(&parser) == 0) {
        free(r.seen);
        return ltn_errinfo_set(info, -ENOMEM, "%s: out of memory", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    int rc = run(&r, &parser);
    yaml_parser_delete(&parser);
    free(r.seen);
    return rc;
}

int ltn_conf_load_file(const struct ltn_conf_table *t, void *target, const char *path,
                       struct ltn_errinfo *info)
{
    struct ltn_buf text;
    ltn_buf_init(&text, MAX_FILE_BYTES + 1);
    int rc = ltn_file_read(path, &text);
    if (rc < 0) {
        (void)ltn_errinfo_set(info, rc, "%s: %s", path, ltn_err_str(rc));
    } else {
        rc = ltn_conf_load_yaml(t, target, ltn_buf_str(&text), text.len, path, info);
    }
    ltn_buf_done(&text);
    return rc;
}
