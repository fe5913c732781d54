/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/tracepoint.h"

#include <bpf/btf.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define MAX_NAME 100

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct btf *kernel_btf;

/* The kernel describes a tracepoint's arguments as typedef btf_trace_NAME of a pointer to a
 * function whose first parameter is private to it. */
static int count_in(const struct btf *btf, const char *name)
{
    char full[MAX_NAME + 16];
    (void)snprintf(full, sizeof(full), "btf_trace_%s", name);
    __s32 id = btf__find_by_name_kind(btf, full, BTF_KIND_TYPEDEF);
    if (id < 0) {
        return LTN_ERR_NOT_FOUND;
    }
    const struct btf_type *t = btf__type_by_id(btf, (__u32)id);
    t = t == NULL ? NULL : btf__type_by_id(btf, t->type);
    if (t == NULL || !btf_is_ptr(t)) {
        return LTN_ERR_MALFORMED;
    }
    t = btf__type_by_id(btf, t->type);
    if (t == NULL || !btf_is_func_proto(t) || btf_vlen(t) == 0) {
        return LTN_ERR_MALFORMED;
    }
    return btf_vlen(t) - 1;
}

/* Under the lock. 0 when kernel_btf is there. */
static int load(void)
{
    if (kernel_btf == NULL) {
        kernel_btf = btf__load_vmlinux_btf();
    }
    return kernel_btf != NULL ? 0 : errno == ENOMEM ? -ENOMEM : LTN_ERR_UNSUPPORTED;
}

bool ltn_kernel_has_function(const char *name)
{
    (void)pthread_mutex_lock(&lock);
    bool has = load() == 0 && btf__find_by_name_kind(kernel_btf, name, BTF_KIND_FUNC) >= 0;
    (void)pthread_mutex_unlock(&lock);
    return has;
}

int ltn_tracepoint_arg_count(const char *name)
{
    size_t n = strnlen(name, MAX_NAME + 1);
    if (n == 0 || n > MAX_NAME) {
        return -EINVAL;
    }
    (void)pthread_mutex_lock(&lock);
    int rc = load();
    if (rc == 0) {
        rc = count_in(kernel_btf, name);
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

void ltn_tracepoint_done(void)
{
    (void)pthread_mutex_lock(&lock);
    btf__free(kernel_btf);
    kernel_btf = NULL;
    (void)pthread_mutex_unlock(&lock);
}
