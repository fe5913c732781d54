/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/call_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "probe/ops.h"

void ltn_call_json(struct ltn_buf *out, const struct ltn_call *c, const char *node,
                   const struct ltn_stack *stack)
{
    const struct ltn_op *op = ltn_op_get(c->op);
    if (op == NULL) {
        return;
    }
    struct ltn_json j;
    ltn_json_init(&j, out);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "timestamp", "timestamp_ns", c->time_ns);
    ltn_json_kv_str(&j, "node", node);
    ltn_json_kv_u64(&j, "pid", c->pid);
    ltn_json_kv_u64(&j, "tid", c->tid);
    ltn_json_kv_str(&j, "source", ltn_op_source_name(op->source));
    ltn_json_kv_str(&j, "op", op->name);
    ltn_json_kv_u64(&j, "duration_ns", c->duration_ns);
    ltn_json_kv_u64(&j, "oncpu_ns", c->on_cpu_ns);
    ltn_json_kv_u64(&j, "runq_ns", c->run_queue_ns);
    ltn_json_kv_u64(&j, "blocked_ns", c->blocked_ns);
    if (c->segment_ns != 0) {
        ltn_json_kv_u64(&j, "segment_ns", c->segment_ns);
    }
    if (c->bytes != 0) {
        ltn_json_kv_u64(&j, "bytes", c->bytes);
    }
    if (c->comm_id != 0) {
        char id[24];
        (void)snprintf(id, sizeof(id), "%016" PRIx64, c->comm_id);
        ltn_json_kv_str(&j, "comm_id", id);
        ltn_json_kv_u64(&j, "sequence", c->sequence);
    }
    ltn_json_kv_i64(&j, "result", c->result);
    ltn_json_kv_u64(&j, "weight", c->weight);
    if (stack != NULL) {
        char text[2 * LTN_STACK_NAME_BYTES + 32];
        ltn_json_key(&j, "frames");
        ltn_json_open_array(&j);
        for (size_t i = 0; i < stack->count; i++) {
            ltn_json_str(&j, ltn_stack_frame_text(&stack->frames[i], text, sizeof(text)));
        }
        ltn_json_close_array(&j);
    }
    ltn_json_close_object(&j);
    (void)ltn_buf_putc(out, '\n');
}
