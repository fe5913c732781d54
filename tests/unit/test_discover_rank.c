/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/attr.h"
#include "discover/rank.h"

#define PARSE(text, id) ltn_rank_parse(text, sizeof(text), "n7", id)

static void test_torchrun(void **state)
{
    (void)state;
    struct ltn_rank_identity id;
    PARSE("RANK=3\0WORLD_SIZE=8\0LOCAL_RANK=1\0MASTER_ADDR=10.0.0.1\0MASTER_PORT=29500\0"
          "TORCHELASTIC_RUN_ID=none\0CUDA_VISIBLE_DEVICES=2,3\0SLURM_JOB_ID=77\0SLURM_PROCID=0\0"
          "SLURM_NTASKS=2",
          &id);
    assert_int_equal(id.source, LTN_RANK_TORCHRUN);
    assert_int_equal(id.rank, 3);
    assert_int_equal(id.world_size, 8);
    assert_int_equal(id.local_rank, 1);
    assert_int_equal(id.job_source, LTN_JOB_SLURM);
    assert_string_equal(id.job_key, "77");
    assert_string_equal(id.cuda_visible_devices, "2,3");
    assert_string_equal(ltn_rank_source_name(id.source), "torchrun");
}

static void test_job_keys(void **state)
{
    (void)state;
    struct ltn_rank_identity id;
    PARSE("MASTER_PORT=29500\0MASTER_ADDR=host-0.svc", &id);
    assert_int_equal(id.job_source, LTN_JOB_MASTER);
    assert_string_equal(id.job_key, "host-0.svc:29500");
    assert_int_equal(id.source, LTN_RANK_NONE);
    assert_int_equal(id.rank, -1);
    assert_int_equal(id.world_size, -1);
    PARSE("MASTER_PORT=1\0MASTER_ADDR=a\0SLURM_JOB_ID=9\0TORCHELASTIC_RUN_ID=run-7", &id);
    assert_int_equal(id.job_source, LTN_JOB_TORCHELASTIC);
    assert_string_equal(id.job_key, "run-7");
    PARSE("TORCHELASTIC_RUN_ID=run-7\0LANTERNE_JOB=mine\n\x1b[31m", &id);
    assert_int_equal(id.job_source, LTN_JOB_GIVEN);
    assert_string_equal(id.job_key, "mine??[31m");
    PARSE("MASTER_ADDR=a", &id);
    assert_int_equal(id.job_source, LTN_JOB_NONE);
    assert_string_equal(id.job_key, "");
}

/* What means "this machine" everywhere must not join the jobs of two machines. */
static void test_loopback_masters(void **state)
{
    (void)state;
    static const char *const local[] = {"127.0.0.1",  "127.1.2.3", "localhost",
                                        "LocalHost.", "::1",       "[::1]",
                                        "0.0.0.0",    "::",        "::ffff:127.0.0.1"};
    static const char *const global[] = {"10.0.0.1", "128.0.0.1", "localhost-3", "127.example.org",
                                         "n0",       "fe80::1",   "[",           "."};
    char block[128];
    char want[128];
    struct ltn_rank_identity id;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(local); i++) {
        int n = snprintf(block, sizeof(block), "MASTER_PORT=29500%cMASTER_ADDR=%s", 0, local[i]);
        (void)snprintf(want, sizeof(want), "n7/%s:29500", local[i]);
        ltn_rank_parse(block, (size_t)n + 1, "n7", &id);
        assert_string_equal(id.job_key, want);
        assert_int_equal(id.job_source, LTN_JOB_MASTER);
        ltn_rank_parse(block, (size_t)n + 1, "", &id);
        assert_string_equal(id.job_key, want + 3);
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(global); i++) {
        int n = snprintf(block, sizeof(block), "MASTER_PORT=29500%cMASTER_ADDR=%s", 0, global[i]);
        (void)snprintf(want, sizeof(want), "%s:29500", global[i]);
        ltn_rank_parse(block, (size_t)n + 1, "n7", &id);
        assert_string_equal(id.job_key, want);
    }
}

static void test_other_launchers(void **state)
{
    (void)state;
    struct ltn_rank_identity id;
    PARSE("SLURM_PROCID=5\0SLURM_NTASKS=16\0SLURM_LOCALID=1\0SLURM_JOB_ID=4711\0HOSTNAME=n3", &id);
    assert_int_equal(id.source, LTN_RANK_SLURM);
    assert_int_equal(id.rank, 5);
    assert_int_equal(id.world_size, 16);
    assert_int_equal(id.local_rank, 1);
    assert_string_equal(id.host_name, "n3");
    PARSE("OMPI_COMM_WORLD_RANK=0\0OMPI_COMM_WORLD_SIZE=2\0OMPI_COMM_WORLD_LOCAL_RANK=0", &id);
    assert_int_equal(id.source, LTN_RANK_MPI);
    assert_int_equal(id.rank, 0);
    assert_int_equal(id.world_size, 2);
    PARSE("PMI_RANK=1\0PMI_SIZE=2", &id);
    assert_int_equal(id.source, LTN_RANK_MPI);
    assert_int_equal(id.rank, 1);
    assert_int_equal(id.local_rank, -1);
    PARSE("POD_NAME=p-0\0POD_NAMESPACE=ml\0JOB_NAME=train\0NVIDIA_VISIBLE_DEVICES=GPU-1", &id);
    assert_string_equal(id.pod_name, "p-0");
    assert_string_equal(id.pod_namespace, "ml");
    assert_string_equal(id.job_name, "train");
    assert_string_equal(id.nvidia_visible_devices, "GPU-1");
}

static void test_nonsense(void **state)
{
    (void)state;
    struct ltn_rank_identity id;
    /* Numbers that are none, ranks outside the world, cut and empty blocks, first one counts. */
    PARSE("RANK=8\0WORLD_SIZE=8", &id);
    assert_int_equal(id.source, LTN_RANK_NONE);
    PARSE("RANK=-1\0WORLD_SIZE=8", &id);
    assert_int_equal(id.source, LTN_RANK_NONE);
    PARSE("RANK=1x\0WORLD_SIZE=8", &id);
    assert_int_equal(id.source, LTN_RANK_NONE);
    PARSE("RANK=1\0WORLD_SIZE=99999999999999999999", &id);
    assert_int_equal(id.source, LTN_RANK_NONE);
    PARSE("RANK=\0WORLD_SIZE=8", &id);
    assert_int_equal(id.source, LTN_RANK_NONE);
    PARSE("RANK=1\0RANK=2\0WORLD_SIZE=8", &id);
    assert_int_equal(id.rank, 1);
    PARSE("XRANK=1\0RANKX=1\0RANK\0=3\0WORLD_SIZE=8", &id);
    assert_int_equal(id.source, LTN_RANK_NONE);
    ltn_rank_parse("", 0, "n7", &id);
    assert_int_equal(id.rank, -1);
    ltn_rank_parse("LANTERNE_JOB=half-a-na", 22, "n7", &id); /* no end: may be cut */
    assert_string_equal(id.job_key, "");
    char block[1000];
    memset(block, 'a', sizeof(block));
    memcpy(block, "LANTERNE_JOB=", 13);
    block[sizeof(block) - 1] = '\0';
    ltn_rank_parse(block, sizeof(block), "n7", &id);
    assert_int_equal(strlen(id.job_key), LTN_RANK_TEXT_BYTES - 1);
}

static bool holds(const void *where, size_t n, const char *what)
{
    return memmem(where, n, what, strlen(what)) != NULL;
}

/* A real process with secrets around what is wanted: nothing of them stays, neither in the result
 * nor in memory that was used on the way. */
static void test_secrets(void **state)
{
    (void)state;
    char secret[] = "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI-K7MDENG";
    char token[] = "MY_RANK=tok-5f3759df";
    char rank[] = "RANK=0";
    char size[] = "WORLD_SIZE=1";
    char job[] = "LANTERNE_JOB=j";
    char *const env[] = {secret, rank, token, size, job, NULL};
    struct child c;
    child_start(&c, FIXTURES "/discover_child", env);
    struct ltn_rank_identity id;
    memset(&id, 0, sizeof(id));
    assert_int_equal(ltn_rank_read(c.pid, "n7", &id), 0);
    assert_int_equal(id.rank, 0);
    assert_string_equal(id.job_key, "j");
    assert_false(holds(&id, sizeof(id), "wJalr"));
    assert_false(holds(&id, sizeof(id), "tok-5f"));
    /* The block's memory comes back from the allocator without them. */
    char *again = malloc(256u * 1024);
    assert_non_null(again);
    assert_false(holds(again, 256u * 1024, "FEMI-K7MDENG"));
    free(again);
    child_end(&c);
    assert_true(ltn_rank_read(c.pid, "n7", &id) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torchrun),         cmocka_unit_test(test_job_keys),
        cmocka_unit_test(test_loopback_masters), cmocka_unit_test(test_other_launchers),
        cmocka_unit_test(test_nonsense),         cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
