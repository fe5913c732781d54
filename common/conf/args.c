/* SPDX-License-Identifier: Apache-2.0 */
/* Environment, command line, and all sources in order. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "conf/internal.h"

#define LONG_WORD 6

static const char *env_get(char *const *envp, const char *name)
{
    size_t n = strlen(name);
    for (; envp != NULL && *envp != NULL; envp++) {
        if (strncmp(*envp, name, n) == 0 && (*envp)[n] == '=') {
            return *envp + n + 1;
        }
    }
    return NULL;
}

int ltn_conf_load_env(const struct ltn_conf_table *t, void *target, char *const *envp,
                      struct ltn_errinfo *info)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct ltn_conf_key *k = &t->keys[i];
        char name[LTN_CONF_NAME_BYTES];
        if ((k->flags & LTN_CONF_FLAG_ONLY) != 0 || !ltn_conf_env_name(t, k->key, name)) {
            continue;
        }
        const char *text = env_get(envp, name);
        if (text == NULL || text[0] == '\0') {
            continue; /* empty is unset, as OpenTelemetry has it */
        }
        int rc = ltn_conf_set_value(k, target,
                                    &(struct ltn_conf_text){.text = text, .source = name}, info);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* The key's variable that comes nearest, and how far it is. */
static unsigned nearest_variable(const struct ltn_conf_table *t, const char *name,
                                 char ret_near[LTN_CONF_NAME_BYTES])
{
    unsigned least = UINT_MAX;
    for (size_t i = 0; i < t->n; i++) {
        char known[LTN_CONF_NAME_BYTES];
        if ((t->keys[i].flags & LTN_CONF_FLAG_ONLY) != 0 ||
            !ltn_conf_env_name(t, t->keys[i].key, known)) {
            continue;
        }
        unsigned d = ltn_edit_distance(known, name);
        if (d < least) {
            least = d;
            (void)ltn_copy_str(ret_near, LTN_CONF_NAME_BYTES, known);
        }
    }
    return least;
}

/* A word of a few letters is soon near another one. */
static bool is_slip(const char *word, unsigned distance)
{
    return distance > 0 && distance <= (strlen(word) < LONG_WORD ? 1 : 2);
}

void ltn_conf_env_hint(const struct ltn_conf_table *t, char *const *envp, char *out, size_t size)
{
    char prefix[LTN_CONF_NAME_BYTES];
    out[0] = '\0';
    if (!ltn_conf_env_name(t, "", prefix)) {
        return;
    }
    size_t n = strlen(prefix);
    for (; envp != NULL && *envp != NULL; envp++) {
        char name[LTN_CONF_NAME_BYTES];
        char near[LTN_CONF_NAME_BYTES];
        size_t len = strcspn(*envp, "=");
        if (strncmp(*envp, prefix, n) != 0 || len >= sizeof(name)) {
            continue;
        }
        memcpy(name, *envp, len);
        name[len] = '\0';
        if (is_slip(name + n, nearest_variable(t, name, near))) {
            (void)snprintf(out, size, "%s in the environment is no setting; did you mean %s?", name,
                           near);
            return;
        }
    }
}

/* ---- command line ---- */

struct parse {
    const struct ltn_conf_table *t;
    void *target; /* NULL: only look */
    int argc;
    char *const *argv;
    int at;
    bool *seen;
    struct ltn_conf_args *args;
    struct ltn_errinfo *info;
};

static int next_value(struct parse *p, const char *flag, const char *inline_value, const char **ret)
{
    if (inline_value != NULL) {
        *ret = inline_value;
        return 0;
    }
    if (p->at + 1 >= p->argc) {
        return ltn_errinfo_set(p->info, LTN_ERR_CONFIG, "%s needs a value", flag);
    }
    *ret = p->argv[++p->at];
    return 0;
}

static int set_from_flag(struct parse *p, const struct ltn_conf_key *k, const char *flag,
                         const char *text)
{
    if (p->target == NULL) {
        return 0;
    }
    bool *seen = &p->seen[k - p->t->keys];
    struct ltn_conf_text v = {.text = text, .source = flag, .add = *seen};
    *seen = true;
    return ltn_conf_set_value(k, p->target, &v, p->info);
}

/* The key of a flag; *ret_no when it was --no-KEY of a boolean. */
static const struct ltn_conf_key *find_flag(const struct ltn_conf_table *t, const char *name,
                                            bool *ret_no)
{
    char flag[LTN_CONF_NAME_BYTES];
    *ret_no = false;
    for (size_t i = 0; i < t->n; i++) {
        if (ltn_conf_flag_name(&t->keys[i], flag) && strcmp(flag, name) == 0) {
            return &t->keys[i];
        }
    }
    if (strncmp(name, "no-", 3) != 0) {
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->keys[i].type == LTN_CONF_BOOL && ltn_conf_flag_name(&t->keys[i], flag) &&
            strcmp(flag, name + 3) == 0) {
            *ret_no = true;
            return &t->keys[i];
        }
    }
    return NULL;
}

static const char *nearest_flag(const struct ltn_conf_table *t, const char *name,
                                char out[LTN_CONF_NAME_BYTES])
{
    static const char *const fixed[] = {"config", "help", "version", "dump-config", "check-config"};
    unsigned least = 0;
    bool any = false;
    for (size_t i = 0; i < t->n + LTN_ARRAY_SIZE(fixed); i++) {
        char flag[LTN_CONF_NAME_BYTES];
        if (i < t->n ? !ltn_conf_flag_name(&t->keys[i], flag)
                     : !ltn_copy_str(flag, sizeof(flag), fixed[i - t->n])) {
            continue;
        }
        unsigned d = ltn_edit_distance(flag, name);
        if (!any || d < least) {
            any = true;
            least = d;
            (void)ltn_copy_str(out, LTN_CONF_NAME_BYTES, flag);
        }
    }
    return out;
}

static bool take_fixed(struct ltn_conf_args *a, const char *name)
{
    const struct {
        const char *name;
        bool *at;
    } fixed[] = {{"help", &a->help},
                 {"version", &a->version},
                 {"dump-config", &a->dump_config},
                 {"check-config", &a->check_config}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(fixed); i++) {
        if (strcmp(fixed[i].name, name) == 0) {
            *fixed[i].at = true;
            return true;
        }
    }
    return false;
}

static int take_long(struct parse *p, const char *arg)
{
    char name[LTN_CONF_NAME_BYTES];
    char near[LTN_CONF_NAME_BYTES] = "";
    const char *equals = strchr(arg, '=');
    size_t n = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (n - 2 >= sizeof(name)) {
        return ltn_errinfo_set(p->info, LTN_ERR_CONFIG, "unknown flag %.40s…", arg);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(n - 2), arg + 2);
    bool no;
    const struct ltn_conf_key *k = find_flag(p->t, name, &no);
    if (k == NULL && strcmp(name, "config") == 0) {
        return next_value(p, "--config", value, &p->args->config_file);
    }
    if (k == NULL && value == NULL && take_fixed(p->args, name)) {
        return 0;
    }
    if (k == NULL) {
        return ltn_errinfo_set(p->info, LTN_ERR_CONFIG, "unknown flag --%s; did you mean --%s?",
                               name, nearest_flag(p->t, name, near));
    }
    if (no && value != NULL) {
        return ltn_errinfo_set(p->info, LTN_ERR_CONFIG, "--%s takes no value", name);
    }
    char flag[LTN_CONF_NAME_BYTES + 2];
    (void)snprintf(flag, sizeof(flag), "--%s", name);
    int rc = 0;
    if (k->type != LTN_CONF_BOOL) {
        rc = next_value(p, flag, value, &value);
    } else if (value == NULL) {
        value = no ? "false" : "true";
    }
    return rc < 0 ? rc : set_from_flag(p, k, flag, value);
}

static int take_letters(struct parse *p, const char *arg)
{
    for (const char *c = arg + 1; *c != '\0'; c++) {
        const struct ltn_conf_key *k = NULL;
        for (size_t i = 0; i < p->t->n && k == NULL; i++) {
            k = p->t->keys[i].letter == *c ? &p->t->keys[i] : NULL;
        }
        char flag[3] = {'-', *c, '\0'};
        if (k == NULL && *c == 'h') {
            p->args->help = true;
            continue;
        }
        if (k == NULL) {
            return ltn_errinfo_set(p->info, LTN_ERR_CONFIG, "unknown flag %s; see --help",
                                   (unsigned char)*c < 0x80 ? flag : "-?");
        }
        const char *value = "true";
        int rc = 0;
        if (k->type != LTN_CONF_BOOL) {
            rc = next_value(p, flag, c[1] != '\0' ? c + 1 : NULL, &value);
        }
        if (rc == 0) {
            rc = set_from_flag(p, k, flag, value);
        }
        if (rc < 0 || k->type != LTN_CONF_BOOL) {
            return rc;
        }
    }
    return 0;
}

static int take_all(struct parse *p)
{
    bool only_words = false;
    for (p->at = 1; p->at < p->argc; p->at++) {
        const char *arg = p->argv[p->at];
        int rc = 0;
        if (only_words || arg[0] != '-' || arg[1] == '\0') {
            p->args->words[p->args->word_count++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            only_words = true;
        } else if (arg[1] == '-') {
            rc = take_long(p, arg);
        } else {
            rc = take_letters(p, arg);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int ltn_conf_load_args(const struct ltn_conf_table *t, void *target, int argc, char *const *argv,
                       struct ltn_conf_args *ret_args, struct ltn_errinfo *info)
{
    struct ltn_conf_args args = {0};
    size_t most = argc > 0 ? (size_t)argc : 1;
    struct parse p = {
        .t = t, .target = target, .argc = argc, .argv = argv, .args = &args, .info = info};
    args.words = calloc(most, sizeof(*args.words));
    p.seen = calloc(t->n + 1, sizeof(*p.seen));
    int rc = -ENOMEM;
    if (args.words != NULL && p.seen != NULL) {
        rc = take_all(&p);
    } else {
        (void)ltn_errinfo_set(info, rc, "out of memory");
    }
    free(p.seen);
    if (rc < 0) {
        ltn_conf_args_done(&args);
        return rc;
    }
    *ret_args = args;
    return 0;
}

void ltn_conf_args_done(struct ltn_conf_args *a)
{
    free(a->words);
    *a = (struct ltn_conf_args){0};
}

static int check_whole(const struct ltn_conf_table *t, void *target, struct ltn_errinfo *info)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct ltn_conf_key *k = &t->keys[i];
        const char *at = (const char *)target + k->offset;
        bool empty = false;
        if (k->type == LTN_CONF_STRING) {
            const char *text;
            memcpy(&text, at, sizeof(text));
            empty = text == NULL || text[0] == '\0';
        } else if (k->type == LTN_CONF_STRINGS) {
            struct ltn_conf_strings list;
            memcpy(&list, at, sizeof(list));
            empty = list.n == 0;
        }
        if (empty && (k->flags & LTN_CONF_NOT_EMPTY) != 0) {
            return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%s must be set", k->key);
        }
    }
    return 0;
}

static int load_layers(const struct ltn_conf_table *t, void *target, const char *default_file,
                       struct ltn_conf_args *args, struct ltn_errinfo *info)
{
    char name[LTN_CONF_NAME_BYTES];
    if (args->config_file == NULL && ltn_conf_env_name(t, "config", name)) {
        args->config_file = env_get(environ, name);
    }
    int rc = 0;
    if (args->config_file != NULL) {
        rc = ltn_conf_load_file(t, target, args->config_file, info);
    } else if (default_file != NULL && access(default_file, F_OK) == 0) {
        rc = ltn_conf_load_file(t, target, default_file, info);
    }
    return rc < 0 ? rc : ltn_conf_load_env(t, target, environ, info);
}

int ltn_conf_load(const struct ltn_conf_table *t, void *target, const char *default_file, int argc,
                  char *const *argv, struct ltn_conf_args *ret_args, struct ltn_errinfo *info)
{
    struct ltn_conf_args args = {0};
    int rc = ltn_conf_init(t, target, info);
    if (rc == 0) {
        rc = ltn_conf_load_args(t, NULL, argc, argv, &args, info);
    }
    if (rc < 0) {
        return rc;
    }
    if (!args.help && !args.version) {
        rc = load_layers(t, target, default_file, &args, info);
    }
    const char *config_file = args.config_file;
    ltn_conf_args_done(&args);
    if (rc < 0) {
        return rc;
    }
    rc = ltn_conf_load_args(t, target, argc, argv, &args, info);
    if (rc < 0) {
        return rc;
    }
    args.config_file = config_file;
    if (!args.help && !args.version) {
        ltn_conf_env_hint(t, environ, args.hint, sizeof(args.hint));
        rc = check_whole(t, target, info);
    }
    if (rc < 0) {
        ltn_conf_args_done(&args);
        return rc;
    }
    *ret_args = args;
    return 0;
}

int ltn_conf_read_secret(const char *path, char *out, size_t size, struct ltn_errinfo *info)
{
    long n = ltn_file_read_head(path, out, size);
    if (n < 0) {
        return ltn_errinfo_set(info, (int)n, "%s: %s", path, ltn_err_str((int)n));
    }
    size_t skip = strspn(out, " \t\r\n");
    size_t len = strcspn(out + skip, "\r\n");
    while (len > 0 && (out[skip + len - 1] == ' ' || out[skip + len - 1] == '\t')) {
        len--;
    }
    bool cut = (size_t)n == size - 1 && skip + len == (size_t)n;
    if (len == 0 || cut || strlen(out) != (size_t)n) {
        explicit_bzero(out, size);
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "%s: empty, too long or not text", path);
    }
    memmove(out, out + skip, len);
    out[len] = '\0';
    return 0;
}
