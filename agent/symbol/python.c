/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define DEFAULT_BYTES (16U * 1024 * 1024)

struct ltn_python {
    pthread_mutex_t lock; /* guards codes */
    struct ltn_python_codes *codes;
};

struct ltn_python *ltn_python_new(size_t max_bytes)
{
    struct ltn_python *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&p->lock, NULL);
    p->codes = ltn_python_codes_new(max_bytes != 0 ? max_bytes : DEFAULT_BYTES);
    if (p->codes == NULL) {
        ltn_python_free(p);
        return NULL;
    }
    return p;
}

void ltn_python_free(struct ltn_python *p)
{
    if (p != NULL) {
        ltn_python_codes_free(p->codes);
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
    }
}

void ltn_python_add(struct ltn_python *p, const void *record, size_t size)
{
    struct ltn_event_python_code e;
    memset(&e, 0, sizeof(e));
    memcpy(&e, record, size < sizeof(e) ? size : sizeof(e));
    (void)pthread_mutex_lock(&p->lock);
    /* What could not be taken in is asked for again when a frame needs it. */
    int rc = ltn_python_codes_add(p->codes, &e, size);
    (void)rc;
    (void)pthread_mutex_unlock(&p->lock);
}

/* Adds one frame; returns 1 when its code object was not known. */
static size_t add_frame(struct ltn_python *p, const struct ltn_python_frame *f,
                        struct ltn_stack_builder *b)
{
    struct ltn_python_line line;
    struct ltn_stack_frame named = {
        .kind = LTN_FRAME_PYTHON, .function = "", .file = "", .build_id = ""};
    int rc = ltn_python_codes_name(p->codes, f, &line);
    if (rc == LTN_ERR_CLOSED) {
        return 0;
    }
    if (rc == 0) {
        named.function = line.function;
        named.file = line.file;
        named.line = line.exact ? line.line : 0;
    }
    ltn_stack_builder_add(b, &named);
    return rc == LTN_ERR_NOT_FOUND;
}

size_t ltn_python_frames(struct ltn_python *p, const struct ltn_event_stack *e,
                         struct ltn_stack_builder *b, void (*forget)(void *ctx, uint64_t identity),
                         void *ctx)
{
    size_t unknown = 0;
    uint64_t identities[LTN_STACK_PYTHON];
    uint32_t count = e->python_count < LTN_STACK_PYTHON ? e->python_count : LTN_STACK_PYTHON;
    (void)pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (add_frame(p, &e->python[i], b) != 0) {
            identities[unknown++] = e->python[i].identity;
        }
    }
    (void)pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < unknown && forget != NULL; i++) {
        forget(ctx, identities[i]);
    }
    b->truncated = b->truncated || (e->python_flags & (LTN_PYTHON_TRUNCATED | LTN_PYTHON_BROKEN));
    return unknown;
}

struct ltn_python_codes_stats ltn_python_stats(struct ltn_python *p)
{
    (void)pthread_mutex_lock(&p->lock);
    struct ltn_python_codes_stats s = ltn_python_codes_stats(p->codes);
    (void)pthread_mutex_unlock(&p->lock);
    return s;
}
