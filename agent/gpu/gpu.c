/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"

#define RETRY_NS        (30 * LTN_NS_PER_S)
#define MIN_INTERVAL_MS 10u
#define THREAD_STACK    (1024u * 1024)

/*
 * Shared by the handle and the sampler thread; freed by whichever lets go last, so that a thread
 * stuck in the driver never touches freed memory. The provider is used by the thread only. Only
 * `lock` guards the fields below it, and no provider call is made while it is held.
 */
struct ltn_gpu {
    struct ltn_gpu_provider provider;
    uint64_t interval_ns;
    uint64_t box_ns;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned references;
    bool stop;
    bool thread_ended;
    bool call_counted_as_stalled;
    uint64_t call_since_ns; /* 0 = not in a call */
    struct ltn_gpu_view view;
};

struct reason_name {
    uint64_t bit;
    const char *name;
};

static const struct reason_name reason_names[] = {
    {LTN_CLOCK_IDLE, "idle"},
    {LTN_CLOCK_APP_SETTING, "application_clocks"},
    {LTN_CLOCK_SW_POWER_CAP, "sw_power_cap"},
    {LTN_CLOCK_HW_SLOWDOWN, "hw_slowdown"},
    {LTN_CLOCK_SYNC_BOOST, "sync_boost"},
    {LTN_CLOCK_SW_THERMAL, "sw_thermal_slowdown"},
    {LTN_CLOCK_HW_THERMAL, "hw_thermal_slowdown"},
    {LTN_CLOCK_HW_POWER_BRAKE, "hw_power_brake"},
    {LTN_CLOCK_DISPLAY, "display_clock"},
};

const char *ltn_clock_reason_name(uint64_t bit)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(reason_names); i++) {
        if (reason_names[i].bit == bit) {
            return reason_names[i].name;
        }
    }
    return NULL;
}

void ltn_clock_reasons_text(uint64_t reasons, char *out, size_t size)
{
    size_t at = 0;
    if (size == 0) {
        return;
    }
    out[0] = '\0';
    if (reasons == LTN_GPU_NA_U64) {
        (void)ltn_copy_str(out, size, "unknown");
        return;
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(reason_names); i++) {
        if ((reasons & reason_names[i].bit) == 0) {
            continue;
        }
        int n = snprintf(out + at, size - at, "%s%s", at == 0 ? "" : ",", reason_names[i].name);
        if (n < 0 || (size_t)n >= size - at) {
            return;
        }
        at += (size_t)n;
    }
    if (at == 0) {
        (void)ltn_copy_str(out, size, "none");
    }
}

const char *ltn_gpu_state_name(enum ltn_gpu_state state)
{
    static const char *const names[] = {"starting", "ready", "no library", "no driver", "failed"};
    return (unsigned)state < LTN_ARRAY_SIZE(names) ? names[state] : "failed";
}

/* Frees the object when the caller held the last reference; the lock is held and let go. */
static void unref_locked(struct ltn_gpu *g)
{
    bool last = --g->references == 0;
    (void)pthread_mutex_unlock(&g->lock);
    if (!last) {
        return;
    }
    if (g->provider.free_ctx != NULL) {
        g->provider.free_ctx(g->provider.ctx);
    }
    (void)pthread_cond_destroy(&g->changed);
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Marks the time a provider call begins. False: stop instead. */
static bool enter_call(struct ltn_gpu *g)
{
    (void)pthread_mutex_lock(&g->lock);
    bool go = !g->stop;
    if (go) {
        g->call_since_ns = ltn_now_mono_ns();
        g->call_counted_as_stalled = false;
    }
    (void)pthread_mutex_unlock(&g->lock);
    return go;
}

/* Counts the present call once it has outlasted its time box; the lock is held. */
static void judge_call(struct ltn_gpu *g, uint64_t now_ns)
{
    uint64_t since = g->call_since_ns;
    g->view.in_call_ns = since == 0 || now_ns < since ? 0 : now_ns - since;
    g->view.stalled = g->view.in_call_ns > g->box_ns;
    if (g->view.stalled && !g->call_counted_as_stalled) {
        g->call_counted_as_stalled = true;
        g->view.stalls_total++;
    }
}

/* Ends the call and leaves the lock held. */
static void leave_call_locked(struct ltn_gpu *g, int rc)
{
    (void)pthread_mutex_lock(&g->lock);
    judge_call(g, ltn_now_mono_ns());
    g->call_since_ns = 0;
    g->view.in_call_ns = 0;
    g->view.stalled = false;
    if (rc < 0) {
        g->view.errors_total++;
    }
}

static void set_state_locked(struct ltn_gpu *g, int rc)
{
    g->view.error = rc < 0 ? rc : 0;
    if (rc >= 0) {
        g->view.state = LTN_GPU_READY;
    } else if (rc == LTN_ERR_NOT_FOUND) {
        g->view.state = LTN_GPU_NO_LIBRARY;
    } else if (rc == LTN_ERR_UNAVAILABLE) {
        g->view.state = LTN_GPU_NO_DRIVER;
    } else {
        g->view.state = LTN_GPU_FAILED;
    }
    (void)pthread_cond_broadcast(&g->changed);
}

/* One provider call of its own kind, with the result left in the view. */
static int open_provider(struct ltn_gpu *g)
{
    char version[sizeof(g->view.driver_version)] = "";
    uint32_t count = 0;
    if (!enter_call(g)) {
        return -ECANCELED;
    }
    int rc = g->provider.open(g->provider.ctx);
    bool opened = rc == 0;
    if (opened) {
        rc = g->provider.count(g->provider.ctx, &count);
    }
    if (rc == 0 && g->provider.driver_version(g->provider.ctx, version, sizeof(version)) < 0) {
        version[0] = '\0';
    }
    if (opened && rc < 0) {
        g->provider.close(g->provider.ctx);
    }
    leave_call_locked(g, rc);
    if (rc == 0) {
        char clean[sizeof(version)];
        ltn_text_clean(clean, sizeof(clean), version, strnlen(version, sizeof(version)));
        (void)ltn_copy_str(g->view.driver_version, sizeof(g->view.driver_version), clean);
        g->view.device_count = count < LTN_GPU_MAX ? count : LTN_GPU_MAX;
        g->view.devices_left_out = count - g->view.device_count;
        memset(g->view.devices, 0, sizeof(g->view.devices));
    } else {
        set_state_locked(g, rc);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return rc;
}

static void clean_in_place(char *text, size_t size)
{
    char raw[128];
    size_t n = strnlen(text, size);
    n = n < sizeof(raw) ? n : sizeof(raw);
    memcpy(raw, text, n);
    ltn_text_clean(text, size, raw, n);
}

/* What the devices are. A device that gives no answer keeps its place, with an error. */
static int read_inventory(struct ltn_gpu *g)
{
    /* Only this thread writes device_count. */
    for (uint32_t i = 0; i < g->view.device_count; i++) {
        struct ltn_gpu_info info = {0};
        if (!enter_call(g)) {
            return -ECANCELED;
        }
        int rc = g->provider.info(g->provider.ctx, i, &info);
        leave_call_locked(g, rc);
        info.index = i;
        clean_in_place(info.uuid, sizeof(info.uuid));
        clean_in_place(info.name, sizeof(info.name));
        clean_in_place(info.bus_id, sizeof(info.bus_id));
        g->view.devices[i].info = info;
        g->view.devices[i].last_error = rc;
        (void)pthread_mutex_unlock(&g->lock);
    }
    return 0;
}

static int sample_all(struct ltn_gpu *g)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < g->view.device_count; i++) {
        struct ltn_gpu_sample sample = {0};
        if (!enter_call(g)) {
            return -ECANCELED;
        }
        int rc = g->provider.sample(g->provider.ctx, i, &sample);
        leave_call_locked(g, rc);
        struct ltn_gpu_device *d = &g->view.devices[i];
        d->last_error = rc;
        if (rc == 0) {
            d->sample = sample;
            d->has_sample = true;
            d->sample_mono_ns = ltn_now_mono_ns();
        } else {
            failed++;
        }
        (void)pthread_mutex_unlock(&g->lock);
    }
    (void)pthread_mutex_lock(&g->lock);
    g->view.samples_total++;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
    return g->view.device_count > 0 && failed == g->view.device_count ? LTN_ERR_UNAVAILABLE : 0;
}

/* Sleeps for ns, or less when told to stop. True: go on. */
static bool pause_for(struct ltn_gpu *g, uint64_t ns)
{
    uint64_t until = ltn_now_mono_ns() + ns;
    struct timespec t = {.tv_sec = (time_t)(until / LTN_NS_PER_S),
                         .tv_nsec = (long)(until % LTN_NS_PER_S)};
    (void)pthread_mutex_lock(&g->lock);
    while (!g->stop && ltn_now_mono_ns() < until) {
        (void)pthread_cond_timedwait(&g->changed, &g->lock, &t);
    }
    bool go = !g->stop;
    (void)pthread_mutex_unlock(&g->lock);
    return go;
}

/* Samples until told to stop, or until no device answers any more. */
static int serve(struct ltn_gpu *g)
{
    int rc = read_inventory(g);
    if (rc < 0) {
        return rc;
    }
    (void)pthread_mutex_lock(&g->lock);
    set_state_locked(g, 0);
    (void)pthread_mutex_unlock(&g->lock);
    do {
        rc = sample_all(g);
    } while (rc == 0 && pause_for(g, g->interval_ns));
    return rc;
}

static void *sampler(void *arg)
{
    struct ltn_gpu *g = arg;
    do {
        if (open_provider(g) != 0) {
            continue;
        }
        int rc = serve(g);
        g->provider.close(g->provider.ctx);
        if (rc < 0 && rc != -ECANCELED) {
            (void)pthread_mutex_lock(&g->lock);
            set_state_locked(g, rc);
            (void)pthread_mutex_unlock(&g->lock);
        }
    } while (pause_for(g, RETRY_NS));
    (void)pthread_mutex_lock(&g->lock);
    g->thread_ended = true;
    (void)pthread_cond_broadcast(&g->changed);
    unref_locked(g);
    return NULL;
}

static int start_thread(struct ltn_gpu *g)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) {
        return -rc;
    }
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    rc = pthread_create(&thread, &attr, sampler, g);
    (void)pthread_attr_destroy(&attr);
    return -rc;
}

struct ltn_gpu *ltn_gpu_new(const struct ltn_gpu_provider *provider, unsigned interval_ms,
                            unsigned box_ms)
{
    struct ltn_gpu *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        if (provider->free_ctx != NULL) {
            provider->free_ctx(provider->ctx);
        }
        return NULL;
    }
    g->provider = *provider;
    interval_ms = interval_ms < MIN_INTERVAL_MS ? MIN_INTERVAL_MS : interval_ms;
    g->interval_ns = interval_ms * LTN_NS_PER_MS;
    g->box_ns = box_ms * LTN_NS_PER_MS;
    g->references = 2;
    (void)pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&g->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (start_thread(g) < 0) {
        (void)pthread_mutex_lock(&g->lock);
        g->references = 1;
        unref_locked(g);
        return NULL;
    }
    return g;
}

/* Waits for a change until the moment given; the lock is held. False when it has passed. */
static bool wait_change_locked(struct ltn_gpu *g, uint64_t until_ns)
{
    if (ltn_now_mono_ns() >= until_ns) {
        return false;
    }
    struct timespec t = {.tv_sec = (time_t)(until_ns / LTN_NS_PER_S),
                         .tv_nsec = (long)(until_ns % LTN_NS_PER_S)};
    (void)pthread_cond_timedwait(&g->changed, &g->lock, &t);
    return true;
}

bool ltn_gpu_free(struct ltn_gpu *g)
{
    if (g == NULL) {
        return true;
    }
    (void)pthread_mutex_lock(&g->lock);
    g->stop = true;
    (void)pthread_cond_broadcast(&g->changed);
    uint64_t until = ltn_now_mono_ns() + g->box_ns;
    while (!g->thread_ended && wait_change_locked(g, until)) {
    }
    bool ended = g->thread_ended;
    unref_locked(g);
    return ended;
}

void ltn_gpu_view(struct ltn_gpu *g, struct ltn_gpu_view *ret)
{
    (void)pthread_mutex_lock(&g->lock);
    uint64_t now = ltn_now_mono_ns();
    judge_call(g, now);
    for (uint32_t i = 0; i < g->view.device_count; i++) {
        struct ltn_gpu_device *d = &g->view.devices[i];
        d->age_ns = d->has_sample && now > d->sample_mono_ns ? now - d->sample_mono_ns : 0;
    }
    *ret = g->view;
    (void)pthread_mutex_unlock(&g->lock);
}

static bool settled_locked(const struct ltn_gpu *g, uint64_t rounds)
{
    if (g->view.state == LTN_GPU_STARTING) {
        return false;
    }
    return g->view.state != LTN_GPU_READY || g->view.samples_total >= rounds;
}

bool ltn_gpu_wait(struct ltn_gpu *g, uint64_t rounds, unsigned timeout_ms)
{
    uint64_t until = ltn_now_mono_ns() + timeout_ms * LTN_NS_PER_MS;
    (void)pthread_mutex_lock(&g->lock);
    while (!settled_locked(g, rounds) && wait_change_locked(g, until)) {
    }
    bool done = settled_locked(g, rounds);
    (void)pthread_mutex_unlock(&g->lock);
    return done;
}

uint32_t ltn_gpu_devices_of(const struct ltn_gpu_view *view, pid_t pid)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < view->device_count; i++) {
        const struct ltn_gpu_device *d = &view->devices[i];
        for (size_t p = 0; d->has_sample && p < d->sample.proc_count; p++) {
            if (d->sample.procs[p].pid == pid) {
                set |= 1u << i;
            }
        }
    }
    return set;
}
