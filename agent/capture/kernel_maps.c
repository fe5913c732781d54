/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/kernel_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"

/* Entries of one batch; a bucket of the kernel's table must fit, so this grows when it does not. */
#define BATCH_FIRST 128
#define BATCH_MAX   16384

struct batch {
    char *keys;
    char *values;
    uint32_t size;
};

static int batch_alloc(struct batch *b, size_t key_bytes, size_t value_bytes, uint32_t size)
{
    free(b->keys);
    free(b->values);
    b->keys = calloc(size, key_bytes);
    b->values = calloc(size, value_bytes);
    b->size = size;
    return b->keys == NULL || b->values == NULL ? -ENOMEM : 0;
}

int ltn_kernel_map_each(int fd, size_t key_bytes, size_t value_bytes,
                        void (*fn)(const void *key, const void *value, void *arg), void *arg)
{
    struct batch b = {0};
    int rc = batch_alloc(&b, key_bytes, value_bytes, BATCH_FIRST);
    uint32_t cursor[2] = {0};
    bool first = true;
    bool last = false;
    while (rc == 0 && !last) {
        uint32_t count = b.size;
        LIBBPF_OPTS(bpf_map_batch_opts, opts);
        uint32_t next[2] = {0};
        int err =
            bpf_map_lookup_batch(fd, first ? NULL : cursor, next, b.keys, b.values, &count, &opts);
        if (err == -ENOSPC && b.size < BATCH_MAX) {
            rc = batch_alloc(&b, key_bytes, value_bytes, b.size * 4);
            continue;
        }
        if (err < 0 && err != -ENOENT) {
            rc = err;
            break;
        }
        last = err == -ENOENT;
        for (uint32_t i = 0; i < count; i++) {
            fn(b.keys + i * key_bytes, b.values + i * value_bytes, arg);
        }
        cursor[0] = next[0];
        cursor[1] = next[1];
        first = false;
    }
    free(b.keys);
    free(b.values);
    return rc;
}

int ltn_kernel_counters(int fd, uint64_t *out, size_t count)
{
    int cpus = libbpf_num_possible_cpus();
    if (cpus <= 0) {
        return -EINVAL;
    }
    uint64_t *values = calloc((size_t)cpus, sizeof(*values));
    if (values == NULL) {
        return -ENOMEM;
    }
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = bpf_map_lookup_elem(fd, &i, values) == 0 ? 0 : -errno;
        out[i] = 0;
        for (int c = 0; c < cpus; c++) {
            out[i] += values[c];
        }
    }
    free(values);
    return rc;
}
