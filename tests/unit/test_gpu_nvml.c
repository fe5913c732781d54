/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>

#include "base/err.h"
#include "gpu/gpu.h"

static void view_of(const char *path, uint64_t rounds, struct ltn_gpu_view *view)
{
    struct ltn_gpu_provider p;
    assert_int_equal(ltn_gpu_nvml_provider(path, &p), 0);
    struct ltn_gpu *g = ltn_gpu_new(&p, 10, 60000);
    assert_non_null(g);
    assert_true(ltn_gpu_wait(g, rounds, 60000));
    ltn_gpu_view(g, view);
    assert_true(ltn_gpu_free(g));
}

static struct ltn_gpu_view v;

static void test_no_library(void **state)
{
    (void)state;
    view_of("/no/such/libnvidia-ml.so.1", 1, &v);
    assert_int_equal(v.state, LTN_GPU_NO_LIBRARY);
    assert_string_equal(ltn_gpu_state_name(v.state), "no library");
    assert_int_equal(v.device_count, 0);
}

static void test_no_driver(void **state)
{
    (void)state;
    view_of(FIXTURES "/nvml-nodriver.so", 1, &v);
    assert_int_equal(v.state, LTN_GPU_NO_DRIVER);
}

/* A file that is a library but not this one. */
static void test_other_library(void **state)
{
    (void)state;
    view_of(FIXTURES "/libnccl.so.2", 1, &v);
    assert_int_equal(v.state, LTN_GPU_FAILED);
    assert_int_equal(v.error, LTN_ERR_UNSUPPORTED);
}

static void test_old_interface(void **state)
{
    (void)state;
    view_of(FIXTURES "/nvml-old.so", 1, &v);
    assert_int_equal(v.state, LTN_GPU_READY);
    assert_int_equal(v.device_count, 2);
    const struct ltn_gpu_device *d = &v.devices[0];
    assert_int_equal(strlen(d->info.uuid), sizeof(d->info.uuid) - 1);
    assert_string_equal(d->info.name, "");
    assert_int_equal(d->info.minor, -1);
    assert_true(d->info.memory_total_bytes == 1000);
    assert_true(d->info.sm_clock_max_mhz == LTN_GPU_NA_U32);
    assert_int_equal(d->sample.memory_used_bytes, 700);
    assert_int_equal(d->sample.clock_reasons, LTN_CLOCK_HW_SLOWDOWN);
    assert_true(d->sample.power_mw == LTN_GPU_NA_U32);
    assert_true(d->sample.util_gpu_pct == LTN_GPU_NA_U32);
    assert_true(d->sample.ecc_uncorrected_total == LTN_GPU_NA_U64);
    assert_false(d->sample.lost);
    assert_true(d->sample.procs_cut);
    assert_int_equal(d->sample.proc_count, LTN_GPU_PROCS); /* the entry with pid 0 is left out */
    assert_int_equal(d->sample.procs[0].pid, 1001);
    assert_true(d->sample.procs[0].memory_used_bytes == LTN_GPU_NA_U64);
    assert_true(d->sample.procs[1].memory_used_bytes == 2);
    assert_true(v.devices[1].sample.lost);
    assert_true(v.devices[1].sample.memory_used_bytes == LTN_GPU_NA_U64);
    assert_int_equal(ltn_gpu_devices_of(&v, 1001), 1);
}

static void test_simulated_node(void **state)
{
    (void)state;
    char path[512];
    const char *lib_dir = getenv("LTN_TEST_NVML_DIR");
    (void)snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", lib_dir == NULL ? "" : lib_dir);
    if (access(path, R_OK) != 0) {
        print_message("SKIPPED LOUDLY: no simulated NVML at %s\n", path);
        skip();
    }
    char dir[64];
    make_dir(dir);
    assert_int_equal(setenv("SIMGPU_DIR", dir, 1), 0);
    assert_int_equal(setenv("SIMGPU_DEVICES", "3", 1), 0);
    assert_int_equal(setenv("SIMGPU_NODE", "t", 1), 0);
    view_of(path, 2, &v);
    assert_int_equal(v.state, LTN_GPU_READY);
    assert_int_equal(v.device_count, 3);
    assert_int_equal(v.errors_total, 0);
    assert_true(v.driver_version[0] != '\0');
    for (uint32_t i = 0; i < 3; i++) {
        const struct ltn_gpu_device *d = &v.devices[i];
        assert_int_equal(strncmp(d->info.uuid, "GPU-", 4), 0);
        assert_true(d->info.name[0] != '\0');
        assert_int_equal(d->info.minor, i);
        assert_int_equal(strlen(d->info.bus_id), strlen("00000000:00:00.0"));
        assert_true(d->info.memory_total_bytes > 1u << 30 &&
                    d->info.memory_total_bytes != LTN_GPU_NA_U64);
        assert_int_equal(d->info.pcie_gen_max, 5);
        assert_int_equal(d->info.pcie_width_max, 16);
        assert_true(d->has_sample);
        assert_int_equal(d->sample.temperature_c, 41 + i);
        assert_int_equal(d->sample.power_mw, 90000);
        assert_int_equal(d->sample.pcie_gen, 5);
        assert_int_equal(d->sample.pcie_width, 16);
        assert_int_equal(d->sample.clock_reasons, LTN_CLOCK_IDLE);
        assert_int_equal(d->sample.ecc_uncorrected_total, 0);
        assert_true(d->sample.sm_clock_mhz != LTN_GPU_NA_U32);
        assert_true(d->sample.sm_clock_mhz <= d->info.sm_clock_max_mhz);
        assert_true(d->sample.util_gpu_pct <= 100);
        assert_int_equal(d->sample.proc_count, 0);
    }
    assert_string_not_equal(v.devices[0].info.uuid, v.devices[1].info.uuid);
    (void)snprintf(path, sizeof(path), "%s/state.shm", dir);
    (void)unlink(path);
    (void)rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_library),     cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_other_library),  cmocka_unit_test(test_old_interface),
        cmocka_unit_test(test_simulated_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
