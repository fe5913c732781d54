/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct row {
    int code;
    int grpc;
    int http;
    bool retry;
    const char *text;
};

static const struct row rows[] = {
#define LTN_ERR_ROW(name, value, grpc, http, retry, text) {value, grpc, http, retry, text},
    LTN_ERR_TABLE(LTN_ERR_ROW)
#undef LTN_ERR_ROW
        {-ENOMEM, 14, 503, true, "out of memory"},
    {-EAGAIN, 14, 503, true, "try again"},
    {-ETIMEDOUT, 4, 504, true, "timed out"},
    {-ECONNREFUSED, 14, 503, true, "connection refused"},
    {-ECONNRESET, 14, 503, true, "connection reset by peer"},
};

static const struct row *find(int rc)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(rows); i++) {
        if (rows[i].code == rc) {
            return &rows[i];
        }
    }
    return NULL;
}

const char *ltn_err_str(int rc)
{
    const struct row *row = find(rc);
    if (row != NULL) {
        return row->text;
    }
    if (rc == 0) {
        return "success";
    }
    if (rc < 0 && rc >= -4095) {
        const char *text = strerrordesc_np(-rc);
        return text != NULL ? text : "unknown system error";
    }
    return "unknown error";
}

int ltn_err_grpc(int rc)
{
    const struct row *row = find(rc);
    if (row != NULL) {
        return row->grpc;
    }
    return rc == 0 ? 0 : 13;
}

int ltn_err_http(int rc)
{
    const struct row *row = find(rc);
    if (row != NULL) {
        return row->http;
    }
    return rc == 0 ? 200 : 500;
}

bool ltn_err_retryable(int rc)
{
    const struct row *row = find(rc);
    return row != NULL && row->retry;
}

int ltn_errinfo_set(struct ltn_errinfo *info, int code, const char *fmt, ...)
{
    if (info == NULL) {
        return code;
    }
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(info->msg, sizeof(info->msg), fmt, ap);
    va_end(ap);
    info->code = code;
    return code;
}
