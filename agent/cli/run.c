/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/attr.h"

#define TICK_NS LTN_NS_PER_S

/* Freed memory that may lie between what is in use, and how often that is looked at. */
#define SPARE_BYTES   ((size_t)4 << 20)
#define TRIM_EVERY_NS (30 * LTN_NS_PER_S)

static void fill_set(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGHUP);
}

void ltn_run_block_signals(void)
{
    sigset_t set;
    fill_set(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

static int ms_until(uint64_t due_ns, uint64_t now_ns)
{
    return now_ns >= due_ns ? 0 : (int)((due_ns - now_ns) / LTN_NS_PER_MS + 1);
}

/* True when a signal asks to end. SIGHUP is taken and ignored: there is nothing to reload yet. */
static bool asked_to_end(int fd)
{
    struct signalfd_siginfo si;
    while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo != SIGHUP) {
            return true;
        }
    }
    return false;
}

/* What processes that came and went left free is scattered over the heap and would stay resident.
 */
static void give_memory_back(void)
{
    if (mallinfo2().fordblks > SPARE_BYTES) {
        (void)malloc_trim(0);
    }
}

void ltn_run_until_signal(struct ltn_engine *e, uint64_t duration_ns, void (*tick)(void *arg),
                          void *arg)
{
    sigset_t set;
    fill_set(&set);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    uint64_t now = ltn_now_mono_ns();
    uint64_t end = duration_ns == 0 ? UINT64_MAX : now + duration_ns;
    uint64_t next_tick = now + TICK_NS, next_trim = now + TRIM_EVERY_NS;
    while (now < end) {
        struct pollfd p[] = {{.fd = fd, .events = POLLIN},
                             {.fd = ltn_engine_fd(e), .events = POLLIN}};
        (void)poll(p, LTN_ARRAY_SIZE(p), ms_until(next_tick < end ? next_tick : end, now));
        if (p[0].revents != 0 && asked_to_end(fd)) {
            break;
        }
        if (p[1].revents != 0) {
            ltn_engine_look(e);
        }
        now = ltn_now_mono_ns();
        if (now >= next_tick) {
            ltn_engine_tick(e);
            if (tick != NULL) {
                tick(arg);
            }
            next_tick = now + TICK_NS;
        }
        if (now >= next_trim) {
            give_memory_back();
            next_trim = now + TRIM_EVERY_NS;
        }
    }
    (void)close(fd);
}
