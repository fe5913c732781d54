/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the maps of the host families once a window and makes rows of what they gained. Keeps the
 * last reading of each entry; takes entries out of the kernel's maps that belong to ended processes
 * or have not changed for a while, so that new ones find room. One thread.
 */
#ifndef LTN_CAPTURE_HOST_MAPS_H
#define LTN_CAPTURE_HOST_MAPS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/attr.h"
#include "base/map.h"
#include "capture/host_window.h"
#include "probe/probes.h"

/* Life events kept for one window; more are counted. */
#define LTN_HOST_EVENTS_MAX 65536

/* Disks, by kind of request, that get sums of their own. */
#define LTN_HOST_DISKS_MAX 256

struct ltn_host_maps {
    struct ltn_map procs; /* tgid -> last reading, and so on */
    struct ltn_map blocks;
    struct ltn_map nets;
    struct ltn_map retransmits;
    struct ltn_map files;
    struct ltn_host_event_row *events; /* of the running window */
    size_t event_count;
    size_t event_room;
    uint64_t events_lost;
    struct ltn_host_disk_row disks[LTN_HOST_DISKS_MAX];
    size_t disk_count;
    struct ltn_host_totals totals;
    uint64_t refused;     /* entries that memory or a ceiling kept out */
    uint64_t read_errors; /* maps that could not be read */
};

/* Zeroes and prepares; allocates nothing. */
void ltn_host_maps_init(struct ltn_host_maps *h);
void ltn_host_maps_done(struct ltn_host_maps *h);

/* Notes a life event of the running window. time_ns: Unix time. */
void ltn_host_maps_event(struct ltn_host_maps *h, const struct ltn_event_process *e,
                         uint64_t time_ns);

/* Reads the maps and fills the rows of *ret, which lie in the arena. 0 or -ENOMEM. */
int ltn_host_maps_read(struct ltn_host_maps *h, const struct ltn_probe_maps *maps,
                       struct ltn_arena *arena, struct ltn_host_window *ret) ltn_must_check;

/* Watches the children that a process has already: those that it makes later are watched by the
 * kernel programs. */
void ltn_host_maps_adopt(const struct ltn_probe_maps *maps, uint32_t tgid);

#endif /* LTN_CAPTURE_HOST_MAPS_H */
