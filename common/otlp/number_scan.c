/* SPDX-License-Identifier: Apache-2.0 */
/* A number point without a look into its attributes: for points like one that was read before. */
#include "base/err.h"
#include "otlp/read_int.h"

#define FIELD_ATTRIBUTES 7

int ltn_otlp_number_scan(struct ltn_pb_cur c, struct ltn_otlp_number *n)
{
    static const uint8_t nothing[1];
    const uint8_t *first = NULL, *end = NULL;
    struct ltn_pb_field f;
    bool whole = true;
    int rc;
    for (;;) {
        const uint8_t *at = c.p;
        rc = ltn_pb_next(&c, &f);
        if (rc <= 0)
            break;
        switch (f.number << 3 | f.type) {
        case 2 << 3 | LTN_PB_I64:
            n->point.start_ns = f.value;
            break;
        case 3 << 3 | LTN_PB_I64:
            n->point.time_ns = f.value;
            break;
        case 4 << 3 | LTN_PB_I64:
            n->type = LTN_OTLP_DOUBLE;
            n->d = ltn_pb_f64(f.value);
            break;
        case 6 << 3 | LTN_PB_I64:
            n->type = LTN_OTLP_INT;
            n->i = (int64_t)f.value;
            break;
        case FIELD_ATTRIBUTES << 3 | LTN_PB_LEN:
            whole = whole && (first == NULL || at == end);
            first = first == NULL ? at : first;
            end = c.p;
            break;
        case 8 << 3 | LTN_PB_VARINT:
            n->point.flags = (uint32_t)f.value;
            break;
        default:
            break;
        }
    }
    if (rc < 0)
        return rc;
    if (first == NULL)
        first = end = nothing;
    n->point.raw = (struct ltn_otlp_str){whole ? (const char *)first : NULL,
                                         whole ? (size_t)(end - first) : 0};
    return 0;
}
