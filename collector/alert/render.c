/* SPDX-License-Identifier: Apache-2.0 */
/* Alerts to request bodies. Labels and annotations are JSON already. */
#include "alert/internal.h"
#include "base/clock.h"
#include "base/json.h"

/* What Alertmanager's own webhooks give for an alert that has not ended. */
#define NEVER "0001-01-01T00:00:00Z"

static void put_string(struct ltn_buf *out, const char *s)
{
    struct ltn_json j;
    ltn_json_init(&j, out);
    ltn_json_str(&j, s);
}

/* ,"key":"TIME" */
static void put_time(struct ltn_buf *out, const char *key, uint64_t unix_ns)
{
    char text[LTN_RFC3339_BYTES];
    ltn_format_rfc3339(unix_ns, text);
    (void)ltn_buf_printf(out, ",\"%s\":\"%s\"", key, text);
}

void ltn_alert_render_v2(struct ltn_buf *out, struct ltn_alert *const *alerts, size_t n,
                         uint64_t now_ns, uint64_t expire_ns)
{
    (void)ltn_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct ltn_alert *e = alerts[i];
        (void)ltn_buf_printf(out, "%s{\"labels\":%s,\"annotations\":%s", i > 0 ? "," : "",
                             e->c.labels, e->c.annotations);
        put_time(out, "startsAt", e->c.starts_ns);
        put_time(out, "endsAt", e->ends_ns != 0 ? e->ends_ns : now_ns + expire_ns);
        if (e->c.url[0] != '\0') {
            (void)ltn_buf_puts(out, ",\"generatorURL\":");
            put_string(out, e->c.url);
        }
        (void)ltn_buf_putc(out, '}');
    }
    (void)ltn_buf_putc(out, ']');
}

void ltn_alert_render_webhook(struct ltn_buf *out, const struct ltn_alert *e,
                              const char *external_url)
{
    const char *status = e->ends_ns == 0 ? "firing" : "resolved";
    (void)ltn_buf_puts(out, "{\"version\":\"4\",\"groupKey\":");
    put_string(out, e->c.group_key);
    (void)ltn_buf_printf(out,
                         ",\"truncatedAlerts\":0,\"status\":\"%s\",\"receiver\":\"lanterne\","
                         "\"groupLabels\":%s,\"commonLabels\":%s,\"commonAnnotations\":%s,"
                         "\"externalURL\":",
                         status, e->c.group_labels, e->c.labels, e->c.annotations);
    put_string(out, external_url);
    (void)ltn_buf_printf(out, ",\"alerts\":[{\"status\":\"%s\",\"labels\":%s,\"annotations\":%s",
                         status, e->c.labels, e->c.annotations);
    put_time(out, "startsAt", e->c.starts_ns);
    if (e->ends_ns == 0)
        (void)ltn_buf_puts(out, ",\"endsAt\":\"" NEVER "\"");
    else
        put_time(out, "endsAt", e->ends_ns);
    (void)ltn_buf_puts(out, ",\"generatorURL\":");
    put_string(out, e->c.url);
    (void)ltn_buf_printf(out, ",\"fingerprint\":\"%s\"}]}", e->fingerprint);
}
