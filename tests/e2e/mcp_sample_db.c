/* SPDX-License-Identifier: Apache-2.0 */
/* mcp_sample_db FILE WINDOWS: a record of that many windows, with three calls. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "record/record.h"
#include "record_sample.h"

int main(int argc, char **argv)
{
    struct ltn_record *r = NULL;
    struct ltn_errinfo info = {0};
    uint64_t windows;
    if (argc != 3 || !ltn_parse_u64(argv[2], &windows)) {
        (void)fprintf(stderr, "usage: mcp_sample_db FILE WINDOWS\n");
        return 2;
    }
    const struct ltn_record_opts opts = {
        .path = argv[1], .node = "node-a", .record_calls = true, .commit_ms = 10};
    int rc = ltn_record_open(&opts, &r, &info);
    if (rc == 0) {
        rc = ltn_record_start(r);
    }
    for (unsigned i = 0; rc == 0 && i < windows; i++) {
        rc = ltn_record_send_window(r, sample_window(i));
    }
    if (rc == 0) {
        rc = ltn_record_send_calls(r, sample_calls(0, 3));
    }
    ltn_record_close(r); /* writes what waits */
    if (rc != 0) {
        (void)fprintf(stderr, "mcp_sample_db: %d %s\n", rc, info.msg);
    }
    return rc == 0 ? 0 : 1;
}
