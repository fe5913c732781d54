/* SPDX-License-Identifier: Apache-2.0 */
/* YAML from a hostile file: must end with 0 or LTN_ERR_CONFIG, without a leak, and what was
 * accepted must dump to text that is accepted again. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "conf/conf.h"

struct fuzzed {
    bool on;
    uint64_t number;
    double ratio;
    uint64_t age_ns;
    uint64_t size_bytes;
    char *text;
    int mode;
    struct ltn_conf_strings list;
};

static const char *const modes[] = {"auto", "never", NULL};
#define AT(f) offsetof(struct fuzzed, f)
static const struct ltn_conf_key keys[] = {
    {"on", LTN_CONF_BOOL, AT(on), NULL, 0, 0, "", 0, 0, NULL, NULL},
    {"a.number", LTN_CONF_U64, AT(number), NULL, 0, 100, "", 0, 0, NULL, NULL},
    {"a.ratio", LTN_CONF_DOUBLE, AT(ratio), NULL, 0, 0, "", 0, 0, NULL, NULL},
    {"a.b.age", LTN_CONF_DURATION_NS, AT(age_ns), NULL, 0, 0, "", 0, 0, NULL, NULL},
    {"size", LTN_CONF_SIZE_BYTES, AT(size_bytes), NULL, 0, 0, "", 0, 0, NULL, NULL},
    {"a.text", LTN_CONF_STRING, AT(text), NULL, 0, 0, "", 0, 0, NULL, NULL},
    {"mode", LTN_CONF_ENUM, AT(mode), NULL, 0, 0, "", 0, 0, modes, NULL},
    {"list", LTN_CONF_STRINGS, AT(list), NULL, 0, 0, "", 0, 0, NULL, NULL},
};
static const struct ltn_conf_table table = {keys, LTN_ARRAY_SIZE(keys), "LANTERNE_"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzzed f;
    struct fuzzed again;
    struct ltn_errinfo info;
    if (ltn_conf_init(&table, &f, &info) != 0 || ltn_conf_init(&table, &again, &info) != 0) {
        abort();
    }
    int rc = ltn_conf_load_yaml(&table, &f, (const char *)data, size, "fuzz", &info);
    if (rc == 0) {
        struct ltn_buf out;
        ltn_buf_init(&out, 8U << 20);
        rc = ltn_conf_dump(&table, &f, &out);
        if (rc == 0 && out.len < (1U << 20) &&
            ltn_conf_load_yaml(&table, &again, ltn_buf_str(&out), out.len, "dump", &info) != 0) {
            abort();
        }
        ltn_buf_done(&out);
    } else if (rc != LTN_ERR_CONFIG && rc != LTN_ERR_COUNT && rc != -ENOMEM) {
        abort();
    }
    ltn_conf_done(&table, &f);
    ltn_conf_done(&table, &again);
    return 0;
}
