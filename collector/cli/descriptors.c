/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/descriptors.h"

#include <sys/resource.h>

/* For the API and the collector's own files; of a small limit a third. */
#define KEPT_BACK 256u

uint32_t ltn_collector_descriptors(uint32_t wanted)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return wanted;
    rlim_t need = (rlim_t)wanted + KEPT_BACK;
    if (l.rlim_cur < need && l.rlim_cur < l.rlim_max) {
        struct rlimit more = {l.rlim_max < need ? l.rlim_max : need, l.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            l = more;
    }
    rlim_t kept = l.rlim_cur / 3 < KEPT_BACK ? l.rlim_cur / 3 : KEPT_BACK;
    rlim_t room = l.rlim_cur - kept;
    return room < wanted ? (uint32_t)room : wanted;
}
