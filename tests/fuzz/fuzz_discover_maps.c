/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the text of /proc/PID/maps, /proc/PID/stat and /proc/PID/environ. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "discover/maps.h"
#include "discover/proc.h"
#include "discover/rank.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t pos = 0;
    struct ltn_map_line line;
    while (ltn_maps_next(text, size, &pos, &line)) {
        if (line.start >= line.end || line.path < text || line.path + line.path_len > text + size) {
            abort();
        }
        (void)ltn_lib_kind_of_path(line.path, line.path_len);
        (void)ltn_lib_may_embed(line.path, line.path_len);
    }
    struct ltn_proc proc;
    int rc = ltn_proc_parse_stat(text, size, &proc);
    (void)rc;
    struct ltn_rank_identity id;
    ltn_rank_parse(text, size, "n", &id);
    if (id.source != LTN_RANK_NONE && (id.rank < 0 || id.rank >= id.world_size)) {
        abort();
    }
    return 0;
}
