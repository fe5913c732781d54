/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of what the host does. Names of OpenTelemetry where it has one. No path, no address
 * and no process among the attributes. */
#include <stddef.h>
#include <string.h>

#include "push/encode_int.h"

#define NS 1e-9

/* One number with at most one attribute. */
struct gauge {
    const char *name;
    const char *unit;
    const char *key; /* NULL = no attribute */
    const char *text;
    double v; /* negative = not known: not sent */
};

struct sum {
    const char *name;
    const char *unit;
    const char *key;
    const char *text;
    double v;
    bool is_int;
};

/* Numbers of one name stand in a row, so that each name begins one metric. */
static int begin_if_new(struct ltn_encoding *en, const char *before, const char *name,
                        const char *unit, enum ltn_otlp_kind kind)
{
    return before != NULL && strcmp(before, name) == 0 ? 0 : ltn_push_metric(en, name, unit, kind);
}

static int put_gauges(struct ltn_encoding *en, const struct gauge *g, size_t n)
{
    const char *before = NULL;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (!(g[i].v >= 0)) {
            continue;
        }
        struct ltn_otlp_attr attr =
            ltn_otlp_attr_str(g[i].key != NULL ? g[i].key : "", g[i].text != NULL ? g[i].text : "");
        struct ltn_otlp_point p =
            ltn_push_point(en, en->window->start_ns, &attr, g[i].key != NULL ? 1 : 0);
        rc = begin_if_new(en, before, g[i].name, g[i].unit, LTN_OTLP_GAUGE);
        rc = rc == 0 ? ltn_push_double(en, &p, g[i].v) : rc;
        before = g[i].name;
    }
    return rc;
}

static int put_state(struct ltn_encoding *en, const struct ltn_host *h)
{
    bool memory = h->memory_total_bytes > 0;
    double available = (double)h->memory_available_bytes;
    double total = (double)h->memory_total_bytes;
    double swap_free = (double)(h->swap_total_bytes - h->swap_used_bytes);
    const struct gauge gauges[] = {
        {"system.cpu.logical.count", "{cpu}", NULL, NULL, h->cpus},
        {"system.cpu.utilization", "1", NULL, NULL, h->cpu_busy},
        {"system.cpu.load_average.1m", "{thread}", NULL, NULL, h->load1},
        {"system.memory.limit", "By", NULL, NULL, memory ? total : -1.0},
        {"system.linux.memory.available", "By", NULL, NULL, memory ? available : -1.0},
        {"system.memory.utilization", "1", "system.memory.state", "used",
         memory && available <= total ? 1.0 - available / total : -1.0},
        {"system.paging.usage", "By", "system.paging.state", "used",
         memory ? (double)h->swap_used_bytes : -1.0},
        {"system.paging.usage", "By", "system.paging.state", "free", memory ? swap_free : -1.0},
        {"lanterne.system.pressure", "1", "lanterne.resource", "cpu", h->pressure_cpu},
        {"lanterne.system.pressure", "1", "lanterne.resource", "memory", h->pressure_memory},
        {"lanterne.system.pressure", "1", "lanterne.resource", "io", h->pressure_io},
    };
    return put_gauges(en, gauges, LTN_ARRAY_SIZE(gauges));
}

/* ---- disks ---- */

enum disk_metric { DISK_IO, DISK_OPERATIONS, DISK_TIME, DISK_METRICS };

static int put_disk(struct ltn_encoding *en, enum disk_metric which,
                    const struct ltn_host_disk_row *d)
{
    const struct ltn_otlp_attr attrs[] = {
        ltn_otlp_attr_str("system.device", d->disk),
        ltn_otlp_attr_str("disk.io.direction", d->op == LTN_BLOCK_READ ? "read" : "write")};
    struct ltn_otlp_point p = ltn_push_point(en, en->e->started_ns, attrs, LTN_ARRAY_SIZE(attrs));
    if (which == DISK_TIME) {
        return ltn_push_double(en, &p, (double)d->spent_ns * NS);
    }
    return ltn_push_int(en, &p, which == DISK_IO ? d->bytes : d->requests);
}

static int put_disks(struct ltn_encoding *en, const struct ltn_host_window *h)
{
    static const struct {
        const char *name;
        const char *unit;
    } metrics[DISK_METRICS] = {
        [DISK_IO] = {"system.disk.io", "By"},
        [DISK_OPERATIONS] = {"system.disk.operations", "{operation}"},
        [DISK_TIME] = {"system.disk.operation_time", "s"},
    };
    int rc = 0;
    for (int m = 0; m < DISK_METRICS && h->disk_count > 0 && rc == 0; m++) {
        rc = ltn_push_metric(en, metrics[m].name, metrics[m].unit, LTN_OTLP_SUM);
        for (size_t i = 0; i < h->disk_count && rc == 0; i++) {
            if (h->disks[i].op == LTN_BLOCK_READ || h->disks[i].op == LTN_BLOCK_WRITE) {
                rc = put_disk(en, (enum disk_metric)m, &h->disks[i]);
            }
        }
    }
    return rc;
}

/* ---- traced processes together ---- */

static int put_sums(struct ltn_encoding *en, const struct sum *s, size_t n)
{
    const char *before = NULL;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct ltn_otlp_attr attr =
            ltn_otlp_attr_str(s[i].key != NULL ? s[i].key : "", s[i].text != NULL ? s[i].text : "");
        struct ltn_otlp_point p =
            ltn_push_point(en, en->e->started_ns, &attr, s[i].key != NULL ? 1 : 0);
        rc = begin_if_new(en, before, s[i].name, s[i].unit, LTN_OTLP_SUM);
        if (rc == 0) {
            rc = s[i].is_int ? ltn_push_int(en, &p, (uint64_t)s[i].v)
                             : ltn_push_double(en, &p, s[i].v);
        }
        before = s[i].name;
    }
    return rc;
}

static int put_totals(struct ltn_encoding *en, const struct ltn_host_totals *t)
{
    const char *outcome = "lanterne.outcome";
    const char *event = "lanterne.event";
    uint64_t opened = t->opens - t->opens_failed;
    const struct sum sums[] = {
        {"lanterne.traced.memory.allocated", "By", NULL, NULL, (double)t->page_bytes, true},
        {"lanterne.traced.reclaim.time", "s", NULL, NULL, (double)t->reclaim_ns * NS, false},
        {"lanterne.traced.file.opens", "{open}", outcome, "opened", (double)opened, true},
        {"lanterne.traced.file.opens", "{open}", outcome, "missing", (double)t->opens_missing,
         true},
        {"lanterne.traced.file.opens", "{open}", outcome, "failed",
         (double)(t->opens_failed - t->opens_missing), true},
        {"lanterne.traced.file.open_time", "s", NULL, NULL, (double)t->open_ns * NS, false},
        {"lanterne.traced.network.io", "By", "network.io.direction", "transmit",
         (double)t->socket_sent_bytes, true},
        {"lanterne.traced.network.io", "By", "network.io.direction", "receive",
         (double)t->socket_received_bytes, true},
        {"lanterne.traced.disk.io", "By", "disk.io.direction", "read", (double)t->block_read_bytes,
         true},
        {"lanterne.traced.disk.io", "By", "disk.io.direction", "write",
         (double)t->block_written_bytes, true},
        {"lanterne.traced.cpu.throttled_time", "s", NULL, NULL, (double)t->throttled_ns * NS,
         false},
        {"lanterne.traced.process.events", "{event}", event, "fork",
         (double)t->events[LTN_EVENT_FORK], true},
        {"lanterne.traced.process.events", "{event}", event, "exec",
         (double)t->events[LTN_EVENT_EXEC], true},
        {"lanterne.traced.process.events", "{event}", event, "exit",
         (double)t->events[LTN_EVENT_EXIT], true},
        {"lanterne.traced.process.events", "{event}", event, "oom",
         (double)t->events[LTN_EVENT_OOM], true},
        {"lanterne.system.tcp.retransmits", "{segment}", NULL, NULL, (double)t->retransmits, true},
    };
    return put_sums(en, sums, LTN_ARRAY_SIZE(sums));
}

int ltn_push_host(struct ltn_encoding *en)
{
    const struct ltn_host_window *h = &en->window->host;
    if (!h->has_state) {
        return 0;
    }
    int rc = put_state(en, &h->state);
    rc = rc == 0 ? put_disks(en, h) : rc;
    return rc == 0 ? put_totals(en, &h->totals) : rc;
}
