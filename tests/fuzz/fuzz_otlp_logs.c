/* SPDX-License-Identifier: Apache-2.0 */
/* Log requests: what is accepted is written again by our writer; reading that must give as many
 * records, without invalid text. */
#include <stdint.h>
#include <stdlib.h>

#include "otlp/logs_read.h"
#include "otlp/logs_write.h"
#include "otlp/value_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
    struct ltn_otlp_logs_writer w;
    uint32_t resource, scope; /* last index + 1 */
};

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* What a reader let pass can be written as JSON. */
static void check_json(const struct ltn_otlp_value *v)
{
    struct ltn_buf b;
    struct ltn_json j;
    uint32_t cut = 0;
    ltn_buf_init(&b, 1 << 20);
    ltn_json_init(&j, &b);
    require(ltn_otlp_value_json(&j, v, 100, &cut) == 0 || ltn_buf_error(&b) != 0);
    require(j.depth == 0 || ltn_buf_error(&b) != 0);
    ltn_buf_done(&b);
}

static int on_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    struct copy *c = ctx;
    char text[64];
    if (c->resource != g->resource_index + 1) {
        c->resource = g->resource_index + 1;
        require(ltn_otlp_logs_resource(&c->w, g->resource) == 0);
    }
    if (c->scope != g->scope_index + 1) {
        c->scope = g->scope_index + 1;
        require(ltn_otlp_logs_scope(&c->w, NULL, "1") == 0);
    }
    (void)ltn_otlp_value_text(&l->body, text, sizeof(text));
    check_json(&l->body);
    for (size_t i = 0; i < l->attrs.n; i++)
        check_json(&l->attrs.items[i].value);
    require(ltn_otlp_logs_record(&c->w, l) == 0);
    return 0;
}

static int check_text(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    (void)ctx;
    require(!l->bad_utf8 && !l->body.bad_utf8);
    for (size_t i = 0; i < l->attrs.n; i++) {
        require(!l->attrs.items[i].key_bad_utf8 && !l->attrs.items[i].value.bad_utf8);
    }
    for (size_t i = 0; i < g->resource.n; i++) {
        require(!g->resource.items[i].key_bad_utf8);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ltn_otlp_reader *reader;
    if (reader == NULL) {
        reader = ltn_otlp_reader_new(NULL);
        require(reader != NULL);
    }
    struct copy c = {.resource = 0};
    struct ltn_buf b;
    struct ltn_otlp_counts counts, again;
    const struct ltn_otlp_logs_sink sink = {&c, on_log};
    const struct ltn_otlp_logs_sink check = {NULL, check_text};
    ltn_buf_init(&b, (size + 64) * 64);
    ltn_otlp_logs_begin(&c.w, &b);
    int rc = ltn_otlp_logs_read(reader, data, size, &sink, &counts);
    require(ltn_otlp_logs_end(&c.w) == 0);
    require(c.w.records == counts.records);
    if (rc == 0) {
        require(ltn_otlp_logs_read(reader, b.data, b.len, &check, &again) == 0);
        require(again.records == counts.records && again.rejected == 0);
    }
    ltn_buf_done(&b);
    return 0;
}
