/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/rank.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/text.h"

#define ENVIRON_BYTES (256u * 1024)

/* The only variables that are looked at. */
enum var {
    V_LANTERNE_JOB,
    V_RANK,
    V_WORLD_SIZE,
    V_LOCAL_RANK,
    V_MASTER_ADDR,
    V_MASTER_PORT,
    V_TORCHELASTIC_RUN_ID,
    V_SLURM_JOB_ID,
    V_SLURM_PROCID,
    V_SLURM_NTASKS,
    V_SLURM_LOCALID,
    V_OMPI_RANK,
    V_OMPI_SIZE,
    V_OMPI_LOCAL_RANK,
    V_PMI_RANK,
    V_PMI_SIZE,
    V_JOB_NAME,
    V_POD_NAME,
    V_POD_NAMESPACE,
    V_HOSTNAME,
    V_CUDA_VISIBLE_DEVICES,
    V_NVIDIA_VISIBLE_DEVICES,
    V_COUNT
};

static const char *const var_names[V_COUNT] = {
    [V_LANTERNE_JOB] = "LANTERNE_JOB",
    [V_RANK] = "RANK",
    [V_WORLD_SIZE] = "WORLD_SIZE",
    [V_LOCAL_RANK] = "LOCAL_RANK",
    [V_MASTER_ADDR] = "MASTER_ADDR",
    [V_MASTER_PORT] = "MASTER_PORT",
    [V_TORCHELASTIC_RUN_ID] = "TORCHELASTIC_RUN_ID",
    [V_SLURM_JOB_ID] = "SLURM_JOB_ID",
    [V_SLURM_PROCID] = "SLURM_PROCID",
    [V_SLURM_NTASKS] = "SLURM_NTASKS",
    [V_SLURM_LOCALID] = "SLURM_LOCALID",
    [V_OMPI_RANK] = "OMPI_COMM_WORLD_RANK",
    [V_OMPI_SIZE] = "OMPI_COMM_WORLD_SIZE",
    [V_OMPI_LOCAL_RANK] = "OMPI_COMM_WORLD_LOCAL_RANK",
    [V_PMI_RANK] = "PMI_RANK",
    [V_PMI_SIZE] = "PMI_SIZE",
    [V_JOB_NAME] = "JOB_NAME",
    [V_POD_NAME] = "POD_NAME",
    [V_POD_NAMESPACE] = "POD_NAMESPACE",
    [V_HOSTNAME] = "HOSTNAME",
    [V_CUDA_VISIBLE_DEVICES] = "CUDA_VISIBLE_DEVICES",
    [V_NVIDIA_VISIBLE_DEVICES] = "NVIDIA_VISIBLE_DEVICES",
};

/* Values inside the block, not terminated; at == NULL: not set. */
struct value {
    const char *at;
    size_t len;
};

static void find_values(const char *block, size_t len, struct value *values)
{
    size_t pos = 0;
    while (pos < len) {
        const char *entry = block + pos;
        size_t n = strnlen(entry, len - pos);
        if (pos + n >= len) {
            return; /* cut: half a value is worse than none */
        }
        pos += n + 1;
        const char *eq = memchr(entry, '=', n);
        if (eq == NULL) {
            continue;
        }
        size_t name_len = (size_t)(eq - entry);
        for (size_t v = 0; v < V_COUNT; v++) {
            if (strlen(var_names[v]) == name_len && memcmp(var_names[v], entry, name_len) == 0) {
                if (values[v].at == NULL) {
                    values[v] = (struct value){.at = eq + 1, .len = n - name_len - 1};
                }
                break;
            }
        }
    }
}

static bool is_set(const struct value *v)
{
    return v->at != NULL && v->len > 0;
}

/* -1 unless the value is a whole number from 0 to INT32_MAX. */
static int32_t number(const struct value *v)
{
    char text[16];
    uint64_t n;
    if (!is_set(v) || v->len >= sizeof(text)) {
        return -1;
    }
    memcpy(text, v->at, v->len);
    text[v->len] = '\0';
    return ltn_parse_u64(text, &n) && n <= INT32_MAX ? (int32_t)n : -1;
}

static void text(char out[LTN_RANK_TEXT_BYTES], const struct value *v)
{
    if (is_set(v)) {
        ltn_text_clean(out, LTN_RANK_TEXT_BYTES, v->at, v->len);
    }
}

/* Takes rank and size together or not at all. */
static void take_rank(struct ltn_rank_identity *id, enum ltn_rank_source source, int32_t rank,
                      int32_t world_size, int32_t local_rank)
{
    if (id->source != LTN_RANK_NONE || rank < 0 || world_size <= 0 || rank >= world_size) {
        return;
    }
    id->source = source;
    id->rank = rank;
    id->world_size = world_size;
    id->local_rank = local_rank;
}

/* Does the address mean "this machine" on every machine? */
static bool is_loopback(const char *addr)
{
    char bare[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    size_t n = strlen(addr);
    if (n > 0 && addr[n - 1] == '.') {
        n--;
    }
    if (n > 2 && addr[0] == '[' && addr[n - 1] == ']') {
        addr++;
        n -= 2;
    }
    if (n >= sizeof(bare)) {
        return false;
    }
    memcpy(bare, addr, n);
    bare[n] = '\0';
    if (inet_pton(AF_INET, bare, &v4) == 1) {
        uint32_t a = ntohl(v4.s_addr);
        return a >> 24 == IN_LOOPBACKNET || a == INADDR_ANY;
    }
    if (inet_pton(AF_INET6, bare, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) ||
               (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
    }
    static const char *const names[] = {"localhost",  "localhost.localdomain", "localhost4",
                                        "localhost6", "ip6-localhost",         "ip6-loopback"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++) {
        if (strcasecmp(bare, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void take_master(struct ltn_rank_identity *id, const struct value *v, const char *node)
{
    char addr[LTN_RANK_TEXT_BYTES - 16];
    char port[15];
    ltn_text_clean(addr, sizeof(addr), v[V_MASTER_ADDR].at, v[V_MASTER_ADDR].len);
    ltn_text_clean(port, sizeof(port), v[V_MASTER_PORT].at, v[V_MASTER_PORT].len);
    id->job_source = LTN_JOB_MASTER;
    if (is_loopback(addr) && node[0] != '\0') {
        (void)snprintf(id->job_key, sizeof(id->job_key), "%.120s/%s:%s", node, addr, port);
    } else {
        (void)snprintf(id->job_key, sizeof(id->job_key), "%s:%s", addr, port);
    }
}

static void take_job(struct ltn_rank_identity *id, const struct value *v, const char *node)
{
    const struct value *run = &v[V_TORCHELASTIC_RUN_ID];
    if (is_set(&v[V_LANTERNE_JOB])) {
        id->job_source = LTN_JOB_GIVEN;
        text(id->job_key, &v[V_LANTERNE_JOB]);
    } else if (is_set(run) && !(run->len == 4 && memcmp(run->at, "none", 4) == 0)) {
        id->job_source = LTN_JOB_TORCHELASTIC;
        text(id->job_key, run);
    } else if (is_set(&v[V_SLURM_JOB_ID])) {
        id->job_source = LTN_JOB_SLURM;
        text(id->job_key, &v[V_SLURM_JOB_ID]);
    } else if (is_set(&v[V_MASTER_ADDR]) && is_set(&v[V_MASTER_PORT])) {
        take_master(id, v, node);
    }
}

void ltn_rank_parse(const char *block, size_t len, const char *node, struct ltn_rank_identity *ret)
{
    struct value v[V_COUNT] = {0};
    struct ltn_rank_identity id = {.rank = -1, .world_size = -1, .local_rank = -1};
    find_values(block, len, v);
    take_rank(&id, LTN_RANK_TORCHRUN, number(&v[V_RANK]), number(&v[V_WORLD_SIZE]),
              number(&v[V_LOCAL_RANK]));
    take_rank(&id, LTN_RANK_SLURM, number(&v[V_SLURM_PROCID]), number(&v[V_SLURM_NTASKS]),
              number(&v[V_SLURM_LOCALID]));
    take_rank(&id, LTN_RANK_MPI, number(&v[V_OMPI_RANK]), number(&v[V_OMPI_SIZE]),
              number(&v[V_OMPI_LOCAL_RANK]));
    take_rank(&id, LTN_RANK_MPI, number(&v[V_PMI_RANK]), number(&v[V_PMI_SIZE]), -1);
    take_job(&id, v, node);
    text(id.job_name, &v[V_JOB_NAME]);
    text(id.pod_name, &v[V_POD_NAME]);
    text(id.pod_namespace, &v[V_POD_NAMESPACE]);
    text(id.host_name, &v[V_HOSTNAME]);
    text(id.cuda_visible_devices, &v[V_CUDA_VISIBLE_DEVICES]);
    text(id.nvidia_visible_devices, &v[V_NVIDIA_VISIBLE_DEVICES]);
    *ret = id;
}

int ltn_rank_read(pid_t pid, const char *node, struct ltn_rank_identity *ret)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    char *block = malloc(ENVIRON_BYTES);
    if (block == NULL) {
        return -ENOMEM;
    }
    long n = ltn_file_read_head(path, block, ENVIRON_BYTES);
    if (n >= 0) {
        ltn_rank_parse(block, (size_t)n, node, ret);
    }
    explicit_bzero(block, ENVIRON_BYTES);
    free(block);
    return n < 0 ? (int)n : 0;
}

const char *ltn_rank_source_name(enum ltn_rank_source source)
{
    static const char *const names[] = {"none", "torchrun", "slurm", "mpi"};
    return (unsigned)source < LTN_ARRAY_SIZE(names) ? names[source] : "none";
}
