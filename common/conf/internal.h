/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of common/conf share. */
#ifndef LTN_CONF_INTERNAL_H
#define LTN_CONF_INTERNAL_H

#include "conf/conf.h"

/* Longest key, environment name or flag with its terminator. */
#define LTN_CONF_NAME_BYTES 128
/* Most keys of a table and entries of a list. */
#define LTN_CONF_MAX_KEYS 512
#define LTN_CONF_MAX_LIST 1024

/* The row with this key, or NULL. */
const struct ltn_conf_key *ltn_conf_find(const struct ltn_conf_table *t, const char *key);

/* The known key that looks most like it; "" in an empty table. */
const char *ltn_conf_nearest(const struct ltn_conf_table *t, const char *key);

/* Sets one value from n bytes of text. add: a list grows instead of being replaced. whole: the text
 * is one list entry, commas included. */
struct ltn_conf_text {
    const char *text; /* terminated */
    const char *source;
    bool add;
    bool whole;
    bool is_default;
};
int ltn_conf_set_value(const struct ltn_conf_key *k, void *target, const struct ltn_conf_text *v,
                       struct ltn_errinfo *info) ltn_must_check;

/* Empties a list or text. */
int ltn_conf_clear_value(const struct ltn_conf_key *k, void *target) ltn_must_check;

/* Writes the key as a flag ("push-max-age"), as an environment name. False when too long. */
bool ltn_conf_flag_name(const struct ltn_conf_key *k, char out[LTN_CONF_NAME_BYTES]);
bool ltn_conf_env_name(const struct ltn_conf_table *t, const char *key,
                       char out[LTN_CONF_NAME_BYTES]);

#endif /* LTN_CONF_INTERNAL_H */
