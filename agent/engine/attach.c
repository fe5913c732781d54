/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/attach.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define TRY_AGAIN_NS (30 * LTN_NS_PER_S)

static struct ltn_unattached *find(struct ltn_attach *a, uint32_t lib_id)
{
    for (size_t i = 0; i < a->unattached_count; i++) {
        if (a->unattached[i].lib_id == lib_id) {
            return &a->unattached[i];
        }
    }
    return NULL;
}

static void forget(struct ltn_attach *a, uint32_t lib_id)
{
    struct ltn_unattached *u = find(a, lib_id);
    if (u != NULL) {
        *u = a->unattached[--a->unattached_count];
    }
}

static void note_failure(struct ltn_attach *a, uint32_t lib_id, const struct ltn_errinfo *info,
                         int rc)
{
    struct ltn_unattached *u = find(a, lib_id);
    bool known = u != NULL && strcmp(u->why, info->msg) == 0;
    if (u == NULL && a->unattached_count == LTN_UNATTACHED_MAX) {
        a->unattached_over++;
        return;
    }
    if (u == NULL) {
        u = &a->unattached[a->unattached_count++];
    }
    *u = (struct ltn_unattached){.lib_id = lib_id, .rc = rc};
    memcpy(u->why, info->msg, sizeof(u->why));
    if (!known) {
        a->failures_total++;
        ltn_log_warn("%s", info->msg);
    }
}

static struct ltn_attach_wait *waits(struct ltn_attach *a, uint32_t lib_id)
{
    for (size_t i = 0; i < a->waiting_count; i++) {
        if (a->waiting[i].lib_id == lib_id) {
            return &a->waiting[i];
        }
    }
    return NULL;
}

static void wait_for_turn(struct ltn_attach *a, uint32_t lib_id, uint64_t mapped_ns)
{
    a->pending = true;
    if (waits(a, lib_id) == NULL && a->waiting_count < LTN_UNATTACHED_MAX) {
        a->waiting[a->waiting_count++] = (struct ltn_attach_wait){
            .lib_id = lib_id, .since_ns = mapped_ns != 0 ? mapped_ns : ltn_now_mono_ns()};
    }
}

/* Ends the wait; since when it lasted, 0 when there was none. */
static uint64_t end_wait(struct ltn_attach *a, uint32_t lib_id)
{
    struct ltn_attach_wait *w = waits(a, lib_id);
    uint64_t since_ns = w != NULL ? w->since_ns : 0;
    if (w != NULL) {
        *w = a->waiting[--a->waiting_count];
    }
    return since_ns;
}

void ltn_attach_lib(struct ltn_attach *a, const struct ltn_lib *lib, uint64_t mapped_ns)
{
    struct ltn_errinfo info = {0};
    if (ltn_probes_has(a->probes, lib->id)) {
        return;
    }
    int rc = ltn_probes_attach(a->probes, lib, &info);
    if (rc == -ESRCH || rc == -EBUSY) {
        /* Its process ended sooner: is there another one? Or not yet: its old links still close. */
        wait_for_turn(a, lib->id, mapped_ns);
        return;
    }
    if (rc < 0) {
        note_failure(a, lib->id, &info, rc);
        return;
    }
    forget(a, lib->id);
    a->attached_total++;
    uint64_t since_ns = end_wait(a, lib->id);
    mapped_ns = since_ns != 0 ? since_ns : mapped_ns;
    if (mapped_ns == 0) {
        ltn_log_debug("attached to %s: %d functions", lib->path, rc);
        return;
    }
    uint64_t now = ltn_now_mono_ns();
    uint64_t delay = now > mapped_ns ? now - mapped_ns : 0;
    a->delay_max_ns = delay > a->delay_max_ns ? delay : a->delay_max_ns;
    ltn_log_debug("attached to %s: %d functions, %.1f ms after it was mapped", lib->path, rc,
                  (double)delay / 1e6);
}

void ltn_attach_gone(struct ltn_attach *a, const struct ltn_lib *lib)
{
    forget(a, lib->id);
    (void)end_wait(a, lib->id);
    if (ltn_probes_has(a->probes, lib->id)) {
        a->detached_total++;
        a->pending = ltn_probes_detach(a->probes, lib->id) || a->pending;
        ltn_log_debug("detached from %s", lib->path);
    }
}

void ltn_attach_again(struct ltn_attach *a, struct ltn_libs *libs, uint64_t now_mono_ns)
{
    bool due = a->unattached_count > 0 && now_mono_ns >= a->next_try_ns;
    if (!a->pending && !due) {
        return;
    }
    a->pending = false;
    size_t pos = 0;
    const struct ltn_lib *lib;
    while ((lib = ltn_libs_next(libs, &pos)) != NULL) {
        bool used = lib->user_count > 0 || lib->given;
        if (used && (due || find(a, lib->id) == NULL)) {
            ltn_attach_lib(a, lib, 0);
        }
    }
    a->next_try_ns = due ? now_mono_ns + TRY_AGAIN_NS : a->next_try_ns;
}
