/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration from one table per struct. A row names the key, its type, where its value lies, the
 * default, the allowed range and its documentation; from it come the YAML file, the environment,
 * the command line, --help and --dump-config. Later sources win: default < file < environment <
 * flag.
 *
 * A key "push.max_age" is written in YAML as nested mapping push: {max_age: 1h} (or "push.max_age:
 * 1h"), in the environment as LANTERNE_PUSH_MAX_AGE, on the command line as --push-max-age 1h.
 * Secrets are never values, only paths of files that hold them. One thread at a time.
 */
#ifndef LTN_CONF_CONF_H
#define LTN_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/err.h"

enum ltn_conf_type {
    LTN_CONF_BOOL,        /* bool */
    LTN_CONF_U64,         /* uint64_t */
    LTN_CONF_DOUBLE,      /* double */
    LTN_CONF_DURATION_NS, /* uint64_t; "90s", "1h30m" */
    LTN_CONF_SIZE_BYTES,  /* uint64_t; "500m", "10g" */
    LTN_CONF_STRING,      /* char *, never NULL, owned by the struct */
    LTN_CONF_ENUM,        /* int: index into names */
    LTN_CONF_STRINGS,     /* struct ltn_conf_strings; YAML sequence, or text with commas; a repeated
                             flag adds to the list */
};

struct ltn_conf_strings {
    char **items; /* owned by the struct */
    size_t n;
};

/* Flags of a key. */
#define LTN_CONF_HIDDEN    0x01 /* not in --help */
#define LTN_CONF_FLAG_ONLY 0x02 /* neither file nor environment */
#define LTN_CONF_NOT_EMPTY 0x04 /* text and lists must not be empty in the end */
#define LTN_CONF_NARROWS   0x08 /* an empty text would mean more than any other: refused */

struct ltn_conf_key {
    const char *key; /* lower case, digits, '_' and '.' */
    enum ltn_conf_type type;
    size_t offset;
    const char *def; /* default as text; NULL: zero or empty */
    double min, max; /* numbers, durations in s, sizes in bytes; both 0: no range */
    const char *doc; /* one sentence for --help */
    char letter;     /* short flag, 0 for none */
    unsigned flags;
    const char *const *names; /* ENUM: NULL-terminated */
    const char *arg;          /* how --help calls the value; NULL: by type */
};

struct ltn_conf_table {
    const struct ltn_conf_key *keys;
    size_t n;
    const char *env_prefix; /* "LANTERNE_" */
};

/* Sets every default in *target. -ENOMEM; LTN_ERR_CONFIG when the table itself is wrong. */
int ltn_conf_init(const struct ltn_conf_table *t, void *target,
                  struct ltn_errinfo *info) ltn_must_check;

/* Frees texts and lists and clears their pointers. */
void ltn_conf_done(const struct ltn_conf_table *t, void *target);

/* Sets one key from text, as a flag would; LTN_ERR_CONFIG with a message that names source. */
int ltn_conf_set(const struct ltn_conf_table *t, void *target, const char *key, const char *text,
                 const char *source, struct ltn_errinfo *info) ltn_must_check;

/* Reads YAML text (at most 1 MiB, 16 levels, 64 KiB a scalar; one document; aliases, anchors and
 * tags refused; each key once). name stands in messages. LTN_ERR_CONFIG with line and column, and
 * the nearest known key for an unknown one. */
int ltn_conf_load_yaml(const struct ltn_conf_table *t, void *target, const char *text, size_t n,
                       const char *name, struct ltn_errinfo *info) ltn_must_check;

/* The same from a file; -errno when it cannot be read. */
int ltn_conf_load_file(const struct ltn_conf_table *t, void *target, const char *path,
                       struct ltn_errinfo *info) ltn_must_check;

/* Takes PREFIX<KEY> from envp ("NAME=value", NULL-terminated). Empty variables count as unset.
 * Variables that belong to no key are left alone: the cluster puts some of that prefix there. One
 * that differs from a key's in a letter or two is told by ltn_conf_env_hint. */
int ltn_conf_load_env(const struct ltn_conf_table *t, void *target, char *const *envp,
                      struct ltn_errinfo *info) ltn_must_check;

/* A sentence about the first variable that is nearly a key's, "" when there is none. */
void ltn_conf_env_hint(const struct ltn_conf_table *t, char *const *envp, char *out, size_t size);

/* What a command line asked for besides keys. Words that are no flags stay in order; "--" ends the
 * flags. Free with ltn_conf_args_done. */
struct ltn_conf_args {
    bool help;
    bool dump_config;
    bool check_config;
    bool version;
    char hint[160]; /* ltn_conf_load: about a variable that looks like a slip of the pen; or "" */
    const char *config_file; /* --config or PREFIX_CONFIG; NULL when not given; borrowed */
    const char **words;      /* the array is owned, the texts are argv's */
    size_t word_count;
};

/* Parses argv[1 ..]: --key value, --key=value, --key and --no-key for booleans, -x letters,
 * --config FILE, --help, --version, --dump-config, --check-config. Does not touch *target when it
 * is NULL. */
int ltn_conf_load_args(const struct ltn_conf_table *t, void *target, int argc, char *const *argv,
                       struct ltn_conf_args *ret_args, struct ltn_errinfo *info) ltn_must_check;
void ltn_conf_args_done(struct ltn_conf_args *a);

/* All of it in the right order: defaults, the file of --config (or PREFIX_CONFIG, or default_file
 * if that exists; may be NULL), environment, flags, then the checks that need every source. With
 * --help or --version nothing but the flags is read. *target must be freed with ltn_conf_done also
 * on error. */
int ltn_conf_load(const struct ltn_conf_table *t, void *target, const char *default_file, int argc,
                  char *const *argv, struct ltn_conf_args *ret_args,
                  struct ltn_errinfo *info) ltn_must_check;

/* Appends the lines of --help for the keys. */
int ltn_conf_help(const struct ltn_conf_table *t, struct ltn_buf *out) ltn_must_check;

/* Appends the whole configuration as YAML that ltn_conf_load_yaml reads back to the same values. */
int ltn_conf_dump(const struct ltn_conf_table *t, const void *target,
                  struct ltn_buf *out) ltn_must_check;

/* Reads a secret from a file: first line, white space at its ends removed, 1 .. size - 1 bytes.
 * -errno, LTN_ERR_CONFIG when empty or too long. */
int ltn_conf_read_secret(const char *path, char *out, size_t size,
                         struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_CONF_CONF_H */
