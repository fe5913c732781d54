/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/host.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/file.h"
#include "base/text.h"

#define PATH_BYTES 512
#define BAR_CELLS  10

static bool read_proc(const struct ltn_host_sampler *s, const char *name, char *out, size_t size)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/%s", s->proc != NULL ? s->proc : "/proc", name);
    return n > 0 && (size_t)n < sizeof(path) && ltn_file_read_head(path, out, size) > 0;
}

/* The number behind a key at the start of a line; false when there is none. */
static bool number_after(const char *text, const char *key, double *ret)
{
    const char *p = strstr(text, key);
    if (p == NULL) {
        return false;
    }
    char *end;
    p += strlen(key);
    *ret = strtod(p, &end);
    return end != p;
}

static void sample_cpu(struct ltn_host_sampler *s, struct ltn_host *h)
{
    char text[512];
    uint64_t ticks[8] = {0};
    uint64_t all = 0;
    h->cpu_busy = -1;
    if (!read_proc(s, "stat", text, sizeof(text)) || strncmp(text, "cpu ", 4) != 0) {
        return;
    }
    char *p = text + 4;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(ticks); i++) {
        ticks[i] = strtoull(p, &p, 10);
        all += ticks[i];
    }
    uint64_t idle = ticks[3] + ticks[4]; /* idle and iowait */
    uint64_t busy = all > idle ? all - idle : 0;
    if (s->all_ticks != 0 && all > s->all_ticks && busy >= s->busy_ticks) {
        h->cpu_busy = (double)(busy - s->busy_ticks) / (double)(all - s->all_ticks);
    }
    s->busy_ticks = busy;
    s->all_ticks = all;
}

static void sample_memory(const struct ltn_host_sampler *s, struct ltn_host *h)
{
    char text[2048];
    double total;
    double available;
    if (read_proc(s, "meminfo", text, sizeof(text)) && number_after(text, "MemTotal:", &total) &&
        number_after(text, "MemAvailable:", &available) && total >= 1 && available >= 0 &&
        total < 1e15 && available < 1e15) {
        h->memory_total_bytes = (uint64_t)total * 1024;
        h->memory_available_bytes = (uint64_t)available * 1024;
    }
}

static double sample_pressure(const struct ltn_host_sampler *s, const char *name)
{
    char text[256];
    double percent;
    if (!read_proc(s, name, text, sizeof(text)) || !number_after(text, "some avg10=", &percent) ||
        !(percent >= 0 && percent <= 100)) {
        return -1;
    }
    return percent / 100;
}

void ltn_host_sample(struct ltn_host_sampler *s, struct ltn_host *ret)
{
    char text[128];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *ret = (struct ltn_host){.cpus = cpus > 0 ? (unsigned)cpus : 1, .load1 = -1};
    if (read_proc(s, "loadavg", text, sizeof(text))) {
        text[strcspn(text, " ")] = '\0';
        double load;
        ret->load1 = ltn_parse_f64(text, &load) && load >= 0 ? load : -1;
    }
    sample_cpu(s, ret);
    sample_memory(s, ret);
    ret->pressure_cpu = sample_pressure(s, "pressure/cpu");
    ret->pressure_memory = sample_pressure(s, "pressure/memory");
    ret->pressure_io = sample_pressure(s, "pressure/io");
}

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
