/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Pythons among the traced processes: tells the kernel of them, and the other threads what
 * their frames are called. Any thread.
 */
#ifndef LTN_ENGINE_PYTHONS_H
#define LTN_ENGINE_PYTHONS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/map.h"
#include "probe/probes.h"
#include "symbol/python.h"

/* Where Python frames come from: `auto` walks in the kernel, and from outside only for threads that
 * are inside one call for long. */
enum ltn_py_walker { LTN_PY_AUTO, LTN_PY_EBPF, LTN_PY_USERSPACE };

struct ltn_pythons {
    const struct ltn_probes *probes; /* borrowed */
    struct ltn_python *names;
    enum ltn_py_walker walker;
    pthread_mutex_t lock;    /* guards the rest */
    struct ltn_map seen;     /* programs whose stacks came: looked at then */
    struct ltn_errinfo last; /* why a Python's frames cannot be seen, the last time */
};

/* 0 or -ENOMEM. */
int ltn_pythons_init(struct ltn_pythons *p, const struct ltn_probes *probes,
                     enum ltn_py_walker walker) ltn_must_check;
void ltn_pythons_done(struct ltn_pythons *p);

/* Makes the frames of the process's Python visible, if it has one and is not known already. Does
 * nothing before init. */
void ltn_pythons_look(struct ltn_pythons *p, pid_t pid);

/* The same for the process of a stack, once for each program that it runs: for those that no scan
 * told of. */
void ltn_pythons_stack(struct ltn_pythons *p, const struct ltn_event_stack *e,
                       uint64_t proc_start_ns);

/* For struct ltn_resolver_opts: adds the Python frames of a stack. ctx: struct ltn_pythons. */
size_t ltn_pythons_frames(void *ctx, const struct ltn_event_stack *e, struct ltn_stack_builder *b);

/* The line of Python that a thread stands on, which is inside one call for long; "" when it cannot
 * be told. Any thread. */
void ltn_pythons_place(const struct ltn_pythons *p, uint32_t pid, uint32_t tid, char *out,
                       size_t size);

#endif /* LTN_ENGINE_PYTHONS_H */
