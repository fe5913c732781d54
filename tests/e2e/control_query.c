/* SPDX-License-Identifier: Apache-2.0 */
/* control_query URL TOKEN FORMAT SQL [REDUCE]: what `query --collector` does, by itself. */
#include <stdio.h>
#include <string.h>

#include "cli/query_collector.h"

int main(int argc, char **argv)
{
    if (argc < 5) {
        return 64;
    }
    const struct ltn_query_collector q = {
        .url = argv[1],
        .token = argv[2],
        .format = strcmp(argv[3], "json") == 0  ? LTN_QUERY_JSON
                  : strcmp(argv[3], "csv") == 0 ? LTN_QUERY_CSV
                                                : LTN_QUERY_TABLE,
        .sql = argv[4],
        .reduce = argc > 5 ? argv[5] : NULL,
        .timeout_ns = 500000000,
    };
    return ltn_query_collector(&q, stdout, stderr);
}
