/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/err.h"
#include "gpu/gpu.h"

/* A driver that does what the test says; it can be made to hang inside a call. */
struct mock {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int open_rc;
    int sample_rc;
    bool hang;
    bool hanging;
    unsigned opens;
    unsigned closes;
    unsigned samples;
    bool *freed; /* set when the context is freed */
};

static int mock_open(void *ctx)
{
    struct mock *m = ctx;
    m->opens++;
    return m->open_rc;
}

static void mock_close(void *ctx)
{
    struct mock *m = ctx;
    m->closes++;
}

static int mock_version(void *ctx, char *out, size_t size)
{
    (void)ctx;
    (void)snprintf(out, size, "550.0\n");
    return 0;
}

static int mock_count(void *ctx, uint32_t *ret)
{
    (void)ctx;
    *ret = 2;
    return 0;
}

static int mock_info(void *ctx, uint32_t index, struct ltn_gpu_info *ret)
{
    (void)ctx;
    (void)snprintf(ret->uuid, sizeof(ret->uuid), "GPU-%u", index);
    (void)snprintf(ret->name, sizeof(ret->name), "Mock\x1b%u", index);
    ret->memory_total_bytes = 1000;
    return 0;
}

static int mock_sample(void *ctx, uint32_t index, struct ltn_gpu_sample *ret)
{
    struct mock *m = ctx;
    (void)pthread_mutex_lock(&m->lock);
    m->samples++;
    while (m->hang) {
        m->hanging = true;
        (void)pthread_cond_broadcast(&m->cond);
        (void)pthread_cond_wait(&m->cond, &m->lock);
    }
    int rc = m->sample_rc;
    (void)pthread_mutex_unlock(&m->lock);
    ret->sm_clock_mhz = 1000 + index;
    ret->clock_reasons = LTN_CLOCK_HW_THERMAL | LTN_CLOCK_SW_POWER_CAP | 1u << 20;
    ret->proc_count = 1;
    ret->procs[0].pid = index == 0 ? 100 : 200;
    ret->procs[0].memory_used_bytes = 5;
    return rc;
}

static void mock_free(void *ctx)
{
    struct mock *m = ctx;
    bool *freed = m->freed;
    (void)pthread_cond_destroy(&m->cond);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
    __atomic_store_n(freed, true, __ATOMIC_RELEASE);
}

static struct mock *mock_new(struct ltn_gpu_provider *p, bool *freed)
{
    struct mock *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    m->freed = freed;
    *freed = false;
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_cond_init(&m->cond, NULL);
    *p = (struct ltn_gpu_provider){.name = "mock",
                                   .ctx = m,
                                   .open = mock_open,
                                   .close = mock_close,
                                   .driver_version = mock_version,
                                   .count = mock_count,
                                   .info = mock_info,
                                   .sample = mock_sample,
                                   .free_ctx = mock_free};
    return m;
}

static struct ltn_gpu_view *view_of(struct ltn_gpu *g)
{
    static struct ltn_gpu_view view;
    ltn_gpu_view(g, &view);
    return &view;
}

static void test_samples(void **state)
{
    (void)state;
    struct ltn_gpu_provider p;
    bool freed;
    (void)mock_new(&p, &freed);
    struct ltn_gpu *g = ltn_gpu_new(&p, 10, 60000);
    assert_non_null(g);
    assert_true(ltn_gpu_wait(g, 3, 30000));
    struct ltn_gpu_view *v = view_of(g);
    assert_int_equal(v->state, LTN_GPU_READY);
    assert_true(v->samples_total >= 3);
    assert_string_equal(v->driver_version, "550.0?");
    assert_int_equal(v->device_count, 2);
    assert_int_equal(v->devices_left_out, 0);
    assert_string_equal(v->devices[1].info.uuid, "GPU-1");
    assert_string_equal(v->devices[1].info.name, "Mock?1");
    assert_int_equal(v->devices[1].info.index, 1);
    assert_true(v->devices[1].has_sample);
    assert_int_equal(v->devices[1].sample.sm_clock_mhz, 1001);
    assert_false(v->stalled);
    assert_int_equal(v->stalls_total, 0);
    assert_int_equal(v->errors_total, 0);
    assert_int_equal(ltn_gpu_devices_of(v, 200), 2);
    assert_int_equal(ltn_gpu_devices_of(v, 100), 1);
    assert_int_equal(ltn_gpu_devices_of(v, 300), 0);
    assert_true(ltn_gpu_free(g));
    assert_true(freed);
}

static void test_absent(void **state)
{
    (void)state;
    static const struct {
        int rc;
        enum ltn_gpu_state state;
    } rows[] = {{LTN_ERR_NOT_FOUND, LTN_GPU_NO_LIBRARY},
                {LTN_ERR_UNAVAILABLE, LTN_GPU_NO_DRIVER},
                {LTN_ERR_INTERNAL, LTN_GPU_FAILED}};
    for (size_t i = 0; i < 3; i++) {
        struct ltn_gpu_provider p;
        bool freed;
        struct mock *m = mock_new(&p, &freed);
        m->open_rc = rows[i].rc;
        struct ltn_gpu *g = ltn_gpu_new(&p, 10, 60000);
        assert_true(ltn_gpu_wait(g, 1, 30000));
        struct ltn_gpu_view *v = view_of(g);
        assert_int_equal(v->state, rows[i].state);
        assert_int_equal(v->error, rows[i].rc);
        assert_int_equal(v->device_count, 0);
        assert_true(ltn_gpu_free(g)); /* ends at once, though the next try is 30 s away */
        assert_true(freed);
    }
}

/* A driver that hangs: readers go on, with the last good sample, its age, and the flag. */
static void test_hanging_driver(void **state)
{
    (void)state;
    struct ltn_gpu_provider p;
    bool freed;
    struct mock *m = mock_new(&p, &freed);
    struct ltn_gpu *g = ltn_gpu_new(&p, 10, 1);
    assert_true(ltn_gpu_wait(g, 1, 30000));
    (void)pthread_mutex_lock(&m->lock);
    m->hang = true;
    while (!m->hanging) {
        (void)pthread_cond_wait(&m->cond, &m->lock);
    }
    (void)pthread_mutex_unlock(&m->lock);
    struct ltn_gpu_view *v;
    do { /* the time box is 1 ms */
        v = view_of(g);
    } while (!v->stalled);
    assert_true(v->in_call_ns > LTN_NS_PER_MS);
    assert_true(v->stalls_total >= 1);
    assert_true(v->devices[0].has_sample);
    assert_int_equal(v->devices[0].sample.sm_clock_mhz, 1000);
    assert_int_equal(v->state, LTN_GPU_READY);
    assert_true(v->devices[0].age_ns > 0);
    uint64_t age = v->devices[0].age_ns;
    v = view_of(g);
    assert_true(v->devices[0].age_ns >= age);
    uint64_t stalls = v->stalls_total;
    v = view_of(g);
    assert_int_equal(v->stalls_total, stalls); /* one call, counted once */
    /* The agent can leave; the stuck thread is left behind and cleans up when it comes back. */
    assert_false(ltn_gpu_free(g));
    assert_false(freed);
    (void)pthread_mutex_lock(&m->lock);
    m->hang = false;
    (void)pthread_cond_broadcast(&m->cond);
    (void)pthread_mutex_unlock(&m->lock);
    while (!__atomic_load_n(&freed, __ATOMIC_ACQUIRE)) {
        (void)usleep(1000);
    }
}

/* A device that gives errors keeps its last good sample; when none answers the provider is opened
 * anew. */
static void test_errors(void **state)
{
    (void)state;
    struct ltn_gpu_provider p;
    bool freed;
    struct mock *m = mock_new(&p, &freed);
    struct ltn_gpu *g = ltn_gpu_new(&p, 10, 60000);
    assert_true(ltn_gpu_wait(g, 1, 30000));
    (void)pthread_mutex_lock(&m->lock);
    m->sample_rc = -EIO;
    (void)pthread_mutex_unlock(&m->lock);
    struct ltn_gpu_view *v;
    do {
        v = view_of(g);
        (void)usleep(1000);
    } while (v->state == LTN_GPU_READY);
    assert_int_equal(v->state, LTN_GPU_NO_DRIVER);
    assert_int_equal(v->devices[0].last_error, -EIO);
    assert_int_equal(v->devices[0].sample.sm_clock_mhz, 1000);
    assert_true(v->errors_total >= 2);
    assert_true(ltn_gpu_free(g));
    assert_true(freed);
}

static void test_reasons(void **state)
{
    (void)state;
    char text[128];
    ltn_clock_reasons_text(0, text, sizeof(text));
    assert_string_equal(text, "none");
    ltn_clock_reasons_text(LTN_GPU_NA_U64, text, sizeof(text));
    assert_string_equal(text, "unknown");
    ltn_clock_reasons_text(0x44 | 1u << 20, text, sizeof(text));
    assert_string_equal(text, "sw_power_cap,hw_thermal_slowdown");
    ltn_clock_reasons_text(0x1ff, text, 20);
    assert_true(strlen(text) < 20);
    ltn_clock_reasons_text(0x8, text, 1);
    assert_string_equal(ltn_clock_reason_name(0x80), "hw_power_brake");
    assert_null(ltn_clock_reason_name(1u << 20));
    assert_true((LTN_CLOCK_ALARMING & LTN_CLOCK_SW_POWER_CAP) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_hanging_driver), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
