/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that come after the call returned. */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "mcp/internal.h"

struct ltn_mcp_later *ltn_mcp_defer(struct ltn_mcp_call *call)
{
    struct mcp_request *rq = call->request;
    if (!rq->may_wait) {
        (void)ltn_mcp_fail(call, LTN_ERR_UNSUPPORTED, "call this tool in a message of its own");
        return NULL;
    }
    struct ltn_mcp_later *later = calloc(1, sizeof(*later));
    if (later == NULL) {
        (void)ltn_mcp_fail(call, -ENOMEM, "out of memory");
        return NULL;
    }
    later->m = rq->m;
    later->tool = rq->tool;
    later->id = json_copy((json_t *)(uintptr_t)rq->id);
    later->modern = rq->modern;
    rq->later = later;
    return later;
}

void ltn_mcp_later_drop(struct ltn_mcp_later *later)
{
    if (later != NULL) {
        json_decref(later->id);
        free(later->out.body);
        free(later);
    }
}

bool ltn_mcp_later_gone(const struct ltn_mcp_later *later)
{
    return later->gone != NULL && later->gone(later->arg);
}

static void hand_over(struct ltn_mcp_later *later)
{
    later->deliver(later->arg, &later->out);
    later->out.body = NULL;
    ltn_mcp_later_drop(later);
}

void ltn_mcp_finish(struct ltn_mcp_later *later, json_t *result, const char *error)
{
    json_t *o = ltn_mcp_tool_result(later->m, later->tool, result, result != NULL ? NULL : error);
    json_decref(result);
    ltn_mcp_write_result(later->id, later->modern, o, &later->out);
    later->done = true;
    if (later->deliver != NULL) {
        hand_over(later);
    }
}

void ltn_mcp_later_attach(struct ltn_mcp_later *later,
                          void (*deliver)(void *arg, const struct ltn_mcp_out *out),
                          bool (*gone)(void *arg), void *arg)
{
    later->deliver = deliver;
    later->gone = gone;
    later->arg = arg;
    if (later->done) {
        hand_over(later);
    }
}
