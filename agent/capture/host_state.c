/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/host_state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/file.h"
#include "base/text.h"

/* The number after a word of a text, such as "total=" in "some avg10=0.00 ... total=123". */
static bool number_after(const char *text, const char *word, uint64_t *ret)
{
    char digits[24];
    const char *at = strstr(text, word);
    if (at == NULL) {
        return false;
    }
    at += strlen(word);
    size_t n = strspn(at, "0123456789");
    if (n == 0 || n >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, at, n);
    digits[n] = '\0';
    return ltn_parse_u64(digits, ret);
}

static bool pressure_us(const char *path, uint64_t *ret)
{
    char text[256];
    return ltn_file_read_head(path, text, sizeof(text)) > 0 && number_after(text, "total=", ret);
}

static double share(uint64_t now_us, uint64_t before_us, uint64_t window_ns)
{
    double s = now_us > before_us ? (double)(now_us - before_us) * 1e3 / (double)window_ns : 0.0;
    return s > 1.0 ? 1.0 : s;
}

void ltn_pressure_share(struct ltn_pressure *p, uint64_t window_ns, struct ltn_window *w)
{
    struct ltn_pressure now = {0};
    now.known = pressure_us("/proc/pressure/memory", &now.memory_us) &&
                pressure_us("/proc/pressure/io", &now.io_us);
    bool comparable = now.known && p->known && window_ns > 0;
    w->pressure_memory = comparable ? share(now.memory_us, p->memory_us, window_ns) : -1.0;
    w->pressure_io = comparable ? share(now.io_us, p->io_us, window_ns) : -1.0;
    *p = now;
}

/* Fields 14 and 15 of /proc/PID/stat; the name in field 2 may hold anything, so they are counted
 * from the last ')'. */
static uint64_t cpu_ticks(const char *stat)
{
    const char *at = strrchr(stat, ')');
    uint64_t sum = 0;
    for (int field = 2; at != NULL && field <= 15; field++) {
        uint64_t v = 0;
        if (field >= 14 && number_after(at, " ", &v)) {
            sum += v;
        }
        at = strchr(at + 1, ' ');
    }
    return sum;
}

void ltn_activity_read(uint32_t pid, uint64_t *ret_cpu_ns, uint64_t *ret_io_bytes)
{
    char path[64];
    char text[1024];
    uint64_t in = 0;
    uint64_t out = 0;
    *ret_cpu_ns = 0;
    *ret_io_bytes = 0;
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    if (ltn_file_read_head(path, text, sizeof(text)) > 0) {
        *ret_cpu_ns = cpu_ticks(text) * (LTN_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
    }
    (void)snprintf(path, sizeof(path), "/proc/%u/io", pid);
    if (ltn_file_read_head(path, text, sizeof(text)) > 0 && number_after(text, "rchar: ", &in) &&
        number_after(text, "wchar: ", &out)) {
        *ret_io_bytes = in + out;
    }
}
