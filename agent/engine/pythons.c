/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pythons.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "symbol/python_find.h"
#include "symbol/python_walk.h"

#define SEEN_MAX 4096

int ltn_pythons_init(struct ltn_pythons *p, const struct ltn_probes *probes,
                     enum ltn_py_walker walker)
{
    *p = (struct ltn_pythons){.probes = probes, .walker = walker, .names = ltn_python_new(0)};
    ltn_map_init(&p->seen, SEEN_MAX);
    (void)pthread_mutex_init(&p->lock, NULL);
    return p->names != NULL ? 0 : -ENOMEM;
}

void ltn_pythons_done(struct ltn_pythons *p)
{
    if (p->probes != NULL) {
        ltn_python_free(p->names);
        ltn_map_done(&p->seen, NULL);
        (void)pthread_mutex_destroy(&p->lock);
    }
    *p = (struct ltn_pythons){0};
}

static void say(struct ltn_pythons *p, const struct ltn_errinfo *info)
{
    (void)pthread_mutex_lock(&p->lock);
    bool is_new = strcmp(info->msg, p->last.msg) != 0;
    p->last = *info;
    (void)pthread_mutex_unlock(&p->lock);
    if (is_new) {
        ltn_log_info("%s: its calls have no Python lines", info->msg);
    }
}

void ltn_pythons_look(struct ltn_pythons *p, pid_t pid)
{
    struct ltn_errinfo info = {0};
    struct ltn_python_process process;
    if (p->names == NULL || ltn_probes_get_python(p->probes, pid, &process)) {
        return;
    }
    int rc = ltn_python_find(pid, &process, &info);
    if (rc == 0) {
        process.flags |= p->walker == LTN_PY_USERSPACE ? LTN_PYTHON_NO_WALK : 0;
        rc = ltn_probes_set_python(p->probes, pid, &process);
    }
    if (rc < 0 && info.msg[0] != '\0' && rc != -ESRCH) {
        say(p, &info);
    }
}

void ltn_pythons_stack(struct ltn_pythons *p, const struct ltn_event_stack *e,
                       uint64_t proc_start_ns)
{
    const struct program {
        uint64_t start_ns;
        uint32_t pid;
        uint32_t execs;
    } program = {.start_ns = proc_start_ns, .pid = e->hdr.tgid, .execs = e->hdr.reserved};
    bool known = true;
    (void)pthread_mutex_lock(&p->lock);
    if (e->python_count == 0 && ltn_map_get(&p->seen, &program, sizeof(program)) == NULL) {
        if (p->seen.len >= SEEN_MAX) {
            ltn_map_done(&p->seen, NULL);
            ltn_map_init(&p->seen, SEEN_MAX);
        }
        known = ltn_map_put(&p->seen, &program, sizeof(program), p) < 0;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (!known) {
        ltn_pythons_look(p, (pid_t)e->hdr.tgid);
    }
}

static void forget_code(void *ctx, uint64_t identity)
{
    const struct ltn_pythons *p = ctx;
    ltn_probes_forget_code(p->probes, identity);
}

size_t ltn_pythons_frames(void *ctx, const struct ltn_event_stack *e, struct ltn_stack_builder *b)
{
    struct ltn_pythons *p = ctx;
    return ltn_python_frames(p->names, e, b, forget_code, p);
}

void ltn_pythons_place(const struct ltn_pythons *p, uint32_t pid, uint32_t tid, char *out,
                       size_t size)
{
    struct ltn_python_process process;
    struct ltn_stack_builder b;
    out[0] = '\0';
    if (!ltn_probes_get_python(p->probes, (pid_t)pid, &process)) {
        return;
    }
    ltn_stack_builder_init(&b);
    if (ltn_python_walk((pid_t)pid, (pid_t)tid, &process, &b) == 0 && b.count > 0) {
        struct ltn_stack_frame f = b.frames[0];
        const char *texts = ltn_buf_str(&b.texts);
        f.function = texts + (uintptr_t)f.function; /* places in texts, while it is built */
        f.file = texts + (uintptr_t)f.file;
        (void)ltn_stack_frame_text(&f, out, size);
    }
    ltn_stack_builder_done(&b);
}
