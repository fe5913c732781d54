/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LINES_PER_MINUTE 20
#define LINE_BYTES       1024

static _Atomic int least_important = LTN_LOG_INFO;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void ltn_log_set_level(enum ltn_log_level level)
{
    atomic_store_explicit(&least_important, (int)level, memory_order_relaxed);
}

bool ltn_log_parse_level(const char *name, enum ltn_log_level *ret_level)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (enum ltn_log_level)i;
            return true;
        }
    }
    return false;
}

/* Whether the site may print now; takes over the number of lines held back before. */
static bool may_print(struct ltn_log_site *site, uint64_t now_ns, unsigned *ret_held_back)
{
    uint64_t minute = now_ns / (60 * LTN_NS_PER_S) + 1;
    if (atomic_exchange_explicit(&site->minute, minute, memory_order_relaxed) != minute) {
        atomic_store_explicit(&site->printed, 0, memory_order_relaxed);
    }
    if (atomic_fetch_add_explicit(&site->printed, 1, memory_order_relaxed) >= LINES_PER_MINUTE) {
        atomic_fetch_add_explicit(&site->held_back, 1, memory_order_relaxed);
        return false;
    }
    *ret_held_back = atomic_exchange_explicit(&site->held_back, 0, memory_order_relaxed);
    return true;
}

/* Puts the message in quotes' clothing: line ends and quotes inside it must not end the field. */
static size_t put_message(char *out, size_t size, const char *msg)
{
    size_t n = 0;
    for (; *msg != '\0' && n + 2 < size; msg++) {
        unsigned char c = (unsigned char)*msg;
        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else {
            out[n++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
        }
    }
    return n;
}

void ltn_log_write(struct ltn_log_site *site, enum ltn_log_level level, const char *fmt, ...)
{
    unsigned held_back = 0;
    if ((int)level > atomic_load_explicit(&least_important, memory_order_relaxed) ||
        !may_print(site, ltn_now_mono_ns(), &held_back)) {
        return;
    }
    char msg[LINE_BYTES / 2];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);

    char when[LTN_RFC3339_BYTES];
    ltn_format_rfc3339(ltn_now_unix_ns(), when);
    char line[LINE_BYTES + 128];
    int head = snprintf(line, sizeof(line), "time=%s level=%s msg=\"", when, level_names[level]);
    size_t n = (size_t)head;
    n += put_message(line + n, LINE_BYTES - n, msg);
    int tail = held_back > 0 ? snprintf(line + n, sizeof(line) - n, "\" held_back=%u\n", held_back)
                             : snprintf(line + n, sizeof(line) - n, "\"\n");
    ssize_t put = write(STDERR_FILENO, line, n + (size_t)tail);
    (void)put; /* nowhere to report it */
}
