/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/tracepoint.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/err.h"

#define MAX_NAME  100
#define KNOWN_MAX 16

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

/* Loads and attaches a program that only returns. */
static bool try_function(const char *name)
{
    const struct bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    __s32 id = btf__find_by_name_kind(kernel_btf, name, BTF_KIND_FUNC);
    LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_FENTRY,
                .attach_btf_id = id > 0 ? (__u32)id : 0);
    int prog = id > 0 ? bpf_prog_load(BPF_PROG_TYPE_TRACING, "try", "Dual BSD/GPL", program,
                                      LTN_ARRAY_SIZE(program), &opts)
                      : -1;
    int link = prog >= 0 ? bpf_raw_tracepoint_open(NULL, prog) : -1;
    if (link >= 0) {
        (void)close(link);
    }
    if (prog >= 0) {
        (void)close(prog);
    }
    return link >= 0;
}

bool ltn_kernel_function_traceable(const char *name)
{
    static struct {
        const char *name;
        bool can;
    } known[KNOWN_MAX];
    static size_t count;
    (void)pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < count && strcmp(known[i].name, name) != 0) {
        i++;
    }
    bool can = i < count ? known[i].can : load() == 0 && try_function(name);
    if (i == count && count < KNOWN_MAX) {
        known[count].name = name;
        known[count++].can = can;
    }
    (void)pthread_mutex_unlock(&lock);
    return can;
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
