/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/system.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/file.h"
#include "base/text.h"

#define PATH_BYTES 512

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
    char text[2048] = "";
    double total;
    double available;
    if (read_proc(s, "meminfo", text, sizeof(text)) && number_after(text, "MemTotal:", &total) &&
        number_after(text, "MemAvailable:", &available) && total >= 1 && available >= 0 &&
        total < 1e15 && available < 1e15) {
        h->memory_total_bytes = (uint64_t)total * 1024;
        h->memory_available_bytes = (uint64_t)available * 1024;
    }
    double swap;
    double swap_free;
    if (number_after(text, "SwapTotal:", &swap) && number_after(text, "SwapFree:", &swap_free) &&
        swap >= swap_free && swap_free >= 0 && swap < 1e15) {
        h->swap_total_bytes = (uint64_t)swap * 1024;
        h->swap_used_bytes = (uint64_t)(swap - swap_free) * 1024;
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

static double share_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

/* Did a share move by that much? What is not known moves nothing. */
static bool moved(double now, double before, double deadband)
{
    double by = now > before ? now - before : before - now;
    return now >= 0 && before >= 0 && by >= deadband;
}

bool ltn_host_is_due(struct ltn_host_keeper *k, const struct ltn_host *now, uint64_t now_ns,
                     double deadband, uint64_t heartbeat_ns)
{
    const struct ltn_host *last = &k->last;
    double cpus = now->cpus > 0 ? now->cpus : 1.0;
    bool due = k->last_ns == 0 || now_ns >= k->last_ns + heartbeat_ns ||
               moved(now->cpu_busy, last->cpu_busy, deadband) ||
               moved(now->load1 / cpus, last->load1 / cpus, deadband) ||
               moved(share_of(now->memory_available_bytes, now->memory_total_bytes),
                     share_of(last->memory_available_bytes, last->memory_total_bytes), deadband) ||
               moved(share_of(now->swap_used_bytes, now->swap_total_bytes),
                     share_of(last->swap_used_bytes, last->swap_total_bytes), deadband) ||
               moved(now->pressure_cpu, last->pressure_cpu, deadband) ||
               moved(now->pressure_memory, last->pressure_memory, deadband) ||
               moved(now->pressure_io, last->pressure_io, deadband);
    if (due) {
        k->last = *now;
        k->last_ns = now_ns;
    }
    return due;
}
