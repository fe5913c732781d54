/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/host.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/text.h"
#include "cli/table.h"

#define BAR_CELLS  10
#define BODY_BYTES (256U * 1024)

/* "CPU [#####-----]  52%", or a dash where nothing is known: 22 columns with an 8-letter name. */
static void put_bar(struct ltn_buf *out, const char *name, double share)
{
    (void)ltn_buf_printf(out, "%-6s [", name);
    for (int i = 0; i < BAR_CELLS; i++) {
        bool full = share >= 0 && share * BAR_CELLS >= (double)i + 0.5;
        (void)ltn_buf_puts(out, full ? "█" : "░");
    }
    if (share < 0) {
        (void)ltn_buf_puts(out, "]    -");
    } else {
        (void)ltn_buf_printf(out, "] %3.0f%%", 100 * share);
    }
}

void ltn_host_table(struct ltn_buf *out, const struct ltn_host *h, const char *bold,
                    const char *reset)
{
    double used = -1;
    if (h->memory_total_bytes > 0) {
        used = 1 - (double)h->memory_available_bytes / (double)h->memory_total_bytes;
        used = used < 0 ? 0 : used;
    }
    (void)ltn_buf_printf(out, "\n%sSystem context%s\n", bold, reset);
    put_bar(out, "CPU", h->cpu_busy);
    (void)ltn_buf_puts(out, "  ");
    put_bar(out, "memory", used);
    if (h->load1 >= 0) {
        (void)ltn_buf_printf(out, "  load %.1f on %u CPUs", h->load1 < 9999 ? h->load1 : 9999,
                             h->cpus);
    }
    (void)ltn_buf_puts(out, "\nwaits  ");
    static const char *const names[] = {"cpu", "memory", "io"};
    const double shares[] = {h->pressure_cpu, h->pressure_memory, h->pressure_io};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(shares); i++) {
        if (shares[i] < 0) {
            (void)ltn_buf_printf(out, "%s -   ", names[i]);
        } else {
            (void)ltn_buf_printf(out, "%s %.0f%%   ", names[i], 100 * shares[i]);
        }
    }
    (void)ltn_buf_puts(out, "(share of time in which some task waited)\n");
}

/* ---- Host context ---- */

#define SHOWN 3 /* rows of a kind; the largest ones */

/* Short for a size: "812B", "4.1K", "17M". */
static void put_size(struct ltn_buf *out, double bytes)
{
    static const char units[] = "BKMGTPE";
    size_t unit = 0;
    while (bytes >= 1024 && units[unit + 1] != '\0') {
        bytes /= 1024;
        unit++;
    }
    (void)ltn_buf_printf(out, bytes < 9.95 && unit > 0 ? "%.1f%c" : "%.0f%c", bytes, units[unit]);
}

static void put_disks(struct ltn_buf *out, const struct ltn_host_window *h)
{
    for (size_t i = 0; i < h->block_count; i++) {
        const struct ltn_host_block_row *r = &h->blocks[i];
        const struct ltn_block_stats *d = &r->delta;
        static const char *const ops[] = {"read", "write", "flush", "other"};
        if (d->requests == 0) {
            continue;
        }
        (void)ltn_buf_printf(out, "%-16.16s %-10.10s %-5s %8" PRIu64 " x ",
                             r->who.pid != 0 ? r->who.comm : "others", r->disk, ops[r->key.op & 3],
                             d->requests);
        put_size(out, (double)d->bytes);
        (void)ltn_buf_puts(out, "  wait ");
        ltn_table_duration(out, (double)d->queued_ns / (double)d->requests);
        (void)ltn_buf_puts(out, " + ");
        ltn_table_duration(out, (double)d->service_ns / (double)d->requests);
        (void)ltn_buf_printf(out, "  depth %.1f\n", (double)d->depth_sum / (double)d->requests);
    }
}

static void put_proc(struct ltn_buf *out, const struct ltn_host_proc_row *r)
{
    const struct ltn_host_process *d = &r->delta;
    (void)ltn_buf_printf(out, "%7u %-16.16s  memory ", r->who.pid, r->who.comm);
    put_size(out, (double)d->pages * (double)sysconf(_SC_PAGESIZE));
    (void)ltn_buf_printf(out, "  opens %" PRIu64 " (%" PRIu64 " failed)  sockets ", d->opens,
                         d->opens_failed);
    put_size(out, (double)d->socket_sent_bytes);
    (void)ltn_buf_puts(out, "/");
    put_size(out, (double)d->socket_received_bytes);
    (void)ltn_buf_putc(out, '\n');
}

/* The rows with the most of something, most first. Each pass finds the next smaller one. */
static void put_procs(struct ltn_buf *out, const struct ltn_host_window *h)
{
    uint64_t below = UINT64_MAX;
    for (int n = 0; n < SHOWN; n++) {
        const struct ltn_host_proc_row *best = NULL;
        for (size_t i = 0; i < h->proc_count; i++) {
            const struct ltn_host_proc_row *r = &h->procs[i];
            if (r->delta.pages < below && (best == NULL || r->delta.pages > best->delta.pages)) {
                best = r;
            }
        }
        if (best == NULL) {
            return;
        }
        below = best->delta.pages;
        put_proc(out, best);
    }
}

static void put_files(struct ltn_buf *out, const struct ltn_host_window *h)
{
    uint64_t below = UINT64_MAX;
    for (int n = 0; n < SHOWN; n++) {
        const struct ltn_host_file_row *best = NULL;
        for (size_t i = 0; i < h->file_count; i++) {
            const struct ltn_host_file_row *r = &h->files[i];
            if (r->delta.spent_ns < below &&
                (best == NULL || r->delta.spent_ns > best->delta.spent_ns)) {
                best = r;
            }
        }
        if (best == NULL) {
            return;
        }
        char path[41];
        below = best->delta.spent_ns;
        ltn_text_clean(path, sizeof(path), best->delta.path,
                       strnlen(best->delta.path, sizeof(path) - 1));
        (void)ltn_buf_printf(out, "%7u open %-40s %" PRIu64 " failed, %" PRIu64 " slow, ",
                             best->who.pid, path, best->delta.failed, best->delta.slow);
        ltn_table_duration(out, (double)best->delta.spent_ns);
        (void)ltn_buf_putc(out, '\n');
    }
}

static void put_counts(struct ltn_buf *out, const struct ltn_host_window *h)
{
    size_t events[LTN_EVENT_SEEN + 1] = {0};
    uint64_t segments = 0;
    for (size_t i = 0; i < h->event_count; i++) {
        events[h->events[i].type <= LTN_EVENT_SEEN ? h->events[i].type : 0]++;
    }
    for (size_t i = 0; i < h->retransmit_count; i++) {
        segments += h->retransmits[i].segments;
    }
    if (h->event_count + segments + h->throttle_count == 0) {
        return;
    }
    (void)ltn_buf_printf(out,
                         "%zu forks, %zu execs, %zu exits, %zu OOM kills; %" PRIu64
                         " TCP segments sent again\n",
                         events[LTN_EVENT_FORK], events[LTN_EVENT_EXEC], events[LTN_EVENT_EXIT],
                         events[LTN_EVENT_OOM], segments);
    for (size_t i = 0; i < h->throttle_count && i < SHOWN; i++) {
        const struct ltn_host_throttle_row *r = &h->throttles[i];
        (void)ltn_buf_printf(out, "%7u CPU limit held it back ", r->who.pid);
        ltn_table_duration(out, (double)r->throttled_ns);
        (void)ltn_buf_printf(out, " (%" PRIu64 " of %" PRIu64 " periods)\n", r->throttled,
                             r->periods);
    }
}

void ltn_host_context_table(struct ltn_buf *out, const struct ltn_host_window *h, const char *bold,
                            const char *reset)
{
    struct ltn_buf body;
    ltn_buf_init(&body, BODY_BYTES);
    put_disks(&body, h);
    put_procs(&body, h);
    put_files(&body, h);
    put_counts(&body, h);
    if (body.len > 0) {
        (void)ltn_buf_printf(out, "\n%sHost context%s\n", bold, reset);
        (void)ltn_buf_append(out, ltn_buf_str(&body), body.len);
    }
    ltn_buf_done(&body);
}
