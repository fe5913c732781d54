/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/host_maps.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "capture/kernel_maps.h"
#include "discover/proc.h"

#define ENTRIES_MAX 65536
#define KEY_BYTES   48
/* Windows without a change after which an entry of a path, a peer or a connection goes. */
#define IDLE_WINDOWS 6

/* Last reading of one entry of a kernel map. */
struct entry {
    char key[KEY_BYTES];
    bool seen;       /* in this window's reading */
    unsigned idle;   /* windows without a change */
    unsigned orphan; /* windows in which its process was not known */
    union {
        struct ltn_host_process proc;
        struct ltn_block_stats block;
        struct ltn_net_stats net;
        struct ltn_retransmit_stats retransmit;
        struct ltn_file_stats file;
    } before, now;
};

void ltn_host_maps_init(struct ltn_host_maps *h)
{
    *h = (struct ltn_host_maps){0};
    ltn_map_init(&h->procs, ENTRIES_MAX);
    ltn_map_init(&h->blocks, ENTRIES_MAX);
    ltn_map_init(&h->nets, ENTRIES_MAX);
    ltn_map_init(&h->retransmits, ENTRIES_MAX);
    ltn_map_init(&h->files, ENTRIES_MAX);
}

void ltn_host_maps_done(struct ltn_host_maps *h)
{
    ltn_map_done(&h->procs, free);
    ltn_map_done(&h->blocks, free);
    ltn_map_done(&h->nets, free);
    ltn_map_done(&h->retransmits, free);
    ltn_map_done(&h->files, free);
    free(h->events);
    h->events = NULL;
}

static void set_owner(struct ltn_host_owner *who, uint32_t tgid, uint64_t start_boottime_ns,
                      const char *comm, size_t comm_size)
{
    *who = (struct ltn_host_owner){.pid = tgid};
    who->start_ns = ltn_proc_start_unix_ns(ltn_proc_boottime_to_ticks(start_boottime_ns));
    ltn_text_clean(who->comm, sizeof(who->comm), comm, strnlen(comm, comm_size));
}

/* ---- events ---- */

void ltn_host_maps_event(struct ltn_host_maps *h, const struct ltn_event_process *e,
                         uint64_t time_ns)
{
    if (h->event_count == h->event_room) {
        size_t room = h->event_room == 0 ? 256 : h->event_room * 2;
        struct ltn_host_event_row *more =
            room <= LTN_HOST_EVENTS_MAX ? reallocarray(h->events, room, sizeof(*more)) : NULL;
        if (more == NULL) {
            h->events_lost++;
            return;
        }
        h->events = more;
        h->event_room = room;
    }
    struct ltn_host_event_row *row = &h->events[h->event_count++];
    *row = (struct ltn_host_event_row){.time_ns = time_ns,
                                       .parent_pid = e->parent_tgid,
                                       .exit_code = e->exit_code,
                                       .type = e->hdr.type};
    set_owner(&row->who, e->hdr.tgid, e->start_boottime_ns, e->comm, sizeof(e->comm));
}

static int take_events(struct ltn_host_maps *h, struct ltn_arena *arena,
                       struct ltn_host_window *ret)
{
    struct ltn_host_event_row *rows = ltn_arena_calloc(arena, h->event_count + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < h->event_count; i++) {
        h->totals.events[h->events[i].type]++;
    }
    if (h->event_count > 0) {
        memcpy(rows, h->events, h->event_count * sizeof(*rows));
    }
    ret->events = rows;
    ret->event_count = h->event_count;
    ret->events_lost = h->events_lost;
    h->event_count = 0;
    if (h->event_room > 4096) { /* a storm is over: its memory goes */
        free(h->events);
        h->events = NULL;
        h->event_room = 0;
    }
    return 0;
}

/* ---- readings ---- */

struct reading {
    struct ltn_host_maps *h;
    struct ltn_map *table;
    size_t key_bytes;
    size_t value_bytes;
};

static void on_entry(const void *key, const void *value, void *arg)
{
    struct reading *r = arg;
    uint64_t first;
    memcpy(&first, value, sizeof(first));
    if (r->table == &r->h->procs && first == 0) {
        return; /* made this very moment: its start is not there yet */
    }
    struct entry *e = ltn_map_get(r->table, key, r->key_bytes);
    if (e == NULL) {
        e = calloc(1, sizeof(*e));
        if (e == NULL) {
            r->h->refused++;
            return;
        }
        memcpy(e->key, key, r->key_bytes);
        if (ltn_map_put(r->table, key, r->key_bytes, e) != 0) {
            free(e);
            r->h->refused++;
            return;
        }
    }
    memcpy(&e->now, value, r->value_bytes);
    e->seen = true;
}

static void read_map(struct ltn_host_maps *h, struct ltn_map *table, int fd, size_t key_bytes,
                     size_t value_bytes)
{
    struct reading r = {.h = h, .table = table, .key_bytes = key_bytes, .value_bytes = value_bytes};
    h->read_errors += ltn_kernel_map_each(fd, key_bytes, value_bytes, on_entry, &r) < 0;
}

/* Whose a row of this tgid is. False: the process is not known (not yet, or not any more), and *ret
 * says that it is nobody. */
static bool owner_of(const struct ltn_host_maps *h, uint32_t tgid, struct ltn_host_owner *ret)
{
    const struct entry *e = tgid != 0 ? ltn_map_get(&h->procs, &tgid, sizeof(tgid)) : NULL;
    *ret = (struct ltn_host_owner){0};
    if (e != NULL) {
        set_owner(ret, tgid, e->now.proc.start_boottime_ns, e->now.proc.comm,
                  sizeof(e->now.proc.comm));
    }
    return e != NULL;
}

/* A process may begin between two maps that are read: what it did then waits for the next window.
 */
static bool waits_for_owner(struct entry *e, bool known)
{
    e->orphan = known ? 0 : e->orphan + 1;
    return e->orphan == 1;
}

/* A value that went back began anew in the kernel. */
static uint64_t gain(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}

/* ---- processes ---- */

static struct ltn_host_process proc_gain(const struct ltn_host_process *now,
                                         const struct ltn_host_process *before)
{
    static const struct ltn_host_process none;
    const struct ltn_host_process *b =
        before->start_boottime_ns == now->start_boottime_ns ? before : &none;
    struct ltn_host_process d = *now;
#define GAIN(field) d.field = gain(now->field, b->field)
    GAIN(pages);
    GAIN(reclaims);
    GAIN(reclaim_ns);
    GAIN(opens);
    GAIN(open_ns);
    GAIN(opens_failed);
    GAIN(opens_missing);
    GAIN(opens_slow);
    GAIN(opens_untold);
    GAIN(socket_calls);
    GAIN(socket_sent_bytes);
    GAIN(socket_received_bytes);
    GAIN(socket_untold);
    GAIN(block_read_bytes);
    GAIN(block_written_bytes);
#undef GAIN
    return d;
}

static bool proc_gained(const struct ltn_host_process *d)
{
    return (d->pages | d->reclaims | d->opens | d->socket_calls | d->block_read_bytes |
            d->block_written_bytes) != 0;
}

static void add_proc_totals(struct ltn_host_totals *t, const struct ltn_host_process *d)
{
    t->page_bytes += d->pages * (uint64_t)sysconf(_SC_PAGESIZE);
    t->reclaim_ns += d->reclaim_ns;
    t->opens += d->opens;
    t->opens_failed += d->opens_failed;
    t->opens_missing += d->opens_missing;
    t->open_ns += d->open_ns;
    t->socket_sent_bytes += d->socket_sent_bytes;
    t->socket_received_bytes += d->socket_received_bytes;
    t->block_read_bytes += d->block_read_bytes;
    t->block_written_bytes += d->block_written_bytes;
}

static int build_procs(struct ltn_host_maps *h, struct ltn_arena *arena,
                       struct ltn_host_window *ret)
{
    struct ltn_host_proc_row *rows = ltn_arena_calloc(arena, h->procs.len + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    size_t pos = 0;
    const struct entry *e;
    while ((e = ltn_map_next(&h->procs, &pos)) != NULL) {
        struct ltn_host_proc_row row = {.parent_pid = e->now.proc.parent_tgid,
                                        .ended = e->now.proc.ended != 0,
                                        .now = e->now.proc,
                                        .delta = proc_gain(&e->now.proc, &e->before.proc)};
        if (proc_gained(&row.delta)) {
            uint32_t tgid;
            memcpy(&tgid, e->key, sizeof(tgid));
            (void)owner_of(h, tgid, &row.who);
            add_proc_totals(&h->totals, &row.delta);
            rows[ret->proc_count++] = row;
        }
    }
    ret->procs = rows;
    return 0;
}

/* ---- disks ---- */

static void add_disk_totals(struct ltn_host_maps *h, const struct ltn_host_block_row *row)
{
    size_t i = 0;
    while (i < h->disk_count &&
           (h->disks[i].major != row->key.major || h->disks[i].minor != row->key.minor ||
            h->disks[i].op != row->key.op)) {
        i++;
    }
    if (i == LTN_HOST_DISKS_MAX) {
        h->refused++;
        return;
    }
    struct ltn_host_disk_row *d = &h->disks[i];
    if (i == h->disk_count) {
        h->disk_count++;
        *d = (struct ltn_host_disk_row){
            .major = row->key.major, .minor = row->key.minor, .op = row->key.op};
        memcpy(d->disk, row->disk, sizeof(d->disk));
    }
    d->requests += row->delta.requests;
    d->bytes += row->delta.bytes;
    d->spent_ns += row->delta.queued_ns + row->delta.service_ns;
}

static int take_disks(const struct ltn_host_maps *h, struct ltn_arena *arena,
                      struct ltn_host_window *ret)
{
    struct ltn_host_disk_row *rows = ltn_arena_calloc(arena, h->disk_count + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    memcpy(rows, h->disks, h->disk_count * sizeof(*rows));
    ret->disks = rows;
    ret->disk_count = h->disk_count;
    return 0;
}

static int build_blocks(struct ltn_host_maps *h, struct ltn_arena *arena,
                        struct ltn_host_window *ret)
{
    struct ltn_host_block_row *rows = ltn_arena_calloc(arena, h->blocks.len + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    size_t pos = 0;
    const struct entry *e;
    while ((e = ltn_map_next(&h->blocks, &pos)) != NULL) {
        const struct ltn_block_stats *now = &e->now.block;
        const struct ltn_block_stats *before = &e->before.block;
        if (!e->seen) {
            continue;
        }
        struct ltn_host_block_row *row = &rows[ret->block_count++];
        *row = (struct ltn_host_block_row){.now = *now, .delta = *now};
        memcpy(&row->key, e->key, sizeof(row->key));
        row->delta.requests = gain(now->requests, before->requests);
        row->delta.bytes = gain(now->bytes, before->bytes);
        row->delta.errors = gain(now->errors, before->errors);
        row->delta.queued_ns = gain(now->queued_ns, before->queued_ns);
        row->delta.service_ns = gain(now->service_ns, before->service_ns);
        row->delta.depth_sum = gain(now->depth_sum, before->depth_sum);
        ltn_text_clean(row->disk, sizeof(row->disk), now->disk,
                       strnlen(now->disk, sizeof(now->disk)));
        (void)owner_of(h, row->key.tgid, &row->who);
        add_disk_totals(h, row);
    }
    ret->blocks = rows;
    return take_disks(h, arena, ret);
}

/* ---- network ---- */

static int build_nets(struct ltn_host_maps *h, struct ltn_arena *arena, struct ltn_host_window *ret)
{
    struct ltn_host_net_row *rows = ltn_arena_calloc(arena, h->nets.len + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    size_t pos = 0;
    struct entry *e;
    while ((e = ltn_map_next(&h->nets, &pos)) != NULL) {
        const struct ltn_net_stats *now = &e->now.net;
        const struct ltn_net_stats *before = &e->before.net;
        struct ltn_net_stats d = {
            .sends = gain(now->sends, before->sends),
            .sent_bytes = gain(now->sent_bytes, before->sent_bytes),
            .receives = gain(now->receives, before->receives),
            .received_bytes = gain(now->received_bytes, before->received_bytes),
            .would_block = gain(now->would_block, before->would_block),
            .failed = gain(now->failed, before->failed),
        };
        e->idle = (d.sends | d.receives) != 0 ? 0 : e->idle + 1;
        struct ltn_host_net_row row = {.delta = d};
        memcpy(&row.key, e->key, sizeof(row.key));
        bool known = owner_of(h, row.key.tgid, &row.who);
        if (!waits_for_owner(e, known) && known && e->idle == 0) {
            rows[ret->net_count++] = row;
        }
    }
    ret->nets = rows;
    return 0;
}

static int build_retransmits(struct ltn_host_maps *h, struct ltn_arena *arena,
                             struct ltn_host_window *ret)
{
    struct ltn_host_retransmit_row *rows =
        ltn_arena_calloc(arena, h->retransmits.len + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    size_t pos = 0;
    struct entry *e;
    while ((e = ltn_map_next(&h->retransmits, &pos)) != NULL) {
        uint64_t segments = gain(e->now.retransmit.segments, e->before.retransmit.segments);
        e->idle = segments != 0 ? 0 : e->idle + 1;
        if (segments != 0) {
            struct ltn_host_retransmit_row *row = &rows[ret->retransmit_count++];
            row->segments = segments;
            row->handshake = gain(e->now.retransmit.handshake, e->before.retransmit.handshake);
            memcpy(&row->key, e->key, sizeof(row->key));
            (void)owner_of(h, e->now.retransmit.tgid, &row->who);
            h->totals.retransmits += segments;
        }
    }
    ret->retransmits = rows;
    return 0;
}

/* ---- files ---- */

static int build_files(struct ltn_host_maps *h, struct ltn_arena *arena,
                       struct ltn_host_window *ret)
{
    struct ltn_host_file_row *rows = ltn_arena_calloc(arena, h->files.len + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    size_t pos = 0;
    struct entry *e;
    while ((e = ltn_map_next(&h->files, &pos)) != NULL) {
        const struct ltn_file_stats *now = &e->now.file;
        const struct ltn_file_stats *before = &e->before.file;
        struct ltn_file_stats d = *now;
        d.failed = gain(now->failed, before->failed);
        d.missing = gain(now->missing, before->missing);
        d.slow = gain(now->slow, before->slow);
        d.spent_ns = gain(now->spent_ns, before->spent_ns);
        d.path[sizeof(d.path) - 1] = '\0';
        e->idle = (d.failed | d.slow) != 0 ? 0 : e->idle + 1;
        struct ltn_file_key key;
        struct ltn_host_file_row row = {.delta = d};
        memcpy(&key, e->key, sizeof(key));
        bool known = owner_of(h, key.tgid, &row.who);
        if (!waits_for_owner(e, known) && known && e->idle == 0) {
            rows[ret->file_count++] = row;
        }
    }
    ret->files = rows;
    return 0;
}

/* ---- the end of a window ---- */

static bool is_ended(const struct ltn_host_maps *h, uint32_t tgid)
{
    const struct entry *e = ltn_map_get(&h->procs, &tgid, sizeof(tgid));
    return tgid != 0 && (e == NULL || e->now.proc.ended != 0);
}

/* Lets an entry go, in the kernel too. */
static void let_go(struct ltn_map *table, int fd, struct entry *e, size_t key_bytes)
{
    if (e->seen) {
        (void)bpf_map_delete_elem(fd, e->key);
    }
    free(ltn_map_del(table, e->key, key_bytes));
}

/* The present reading becomes the old one. What the kernel lost, what ended (tgid_at: where the key
 * holds its process) and what lies idle is let go. */
static void turn(struct ltn_host_maps *h, struct ltn_map *table, int fd, size_t key_bytes,
                 long tgid_at, bool goes_idle)
{
    size_t count = 0;
    size_t pos = 0;
    struct entry *e;
    /* A walk does not survive a removal: first find, then remove. */
    struct entry **gone = calloc(table->len + 1, sizeof(struct entry *));
    while ((e = ltn_map_next(table, &pos)) != NULL) {
        uint32_t tgid = 0;
        if (tgid_at >= 0) {
            memcpy(&tgid, e->key + tgid_at, sizeof(tgid));
        }
        if (e->seen && e->orphan == 1) {
            e->seen = false; /* its sums stay new */
        } else if (e->seen && !is_ended(h, tgid) && !(goes_idle && e->idle >= IDLE_WINDOWS)) {
            e->before = e->now;
            e->seen = false;
        } else if (gone != NULL) {
            gone[count++] = e;
        }
    }
    for (size_t i = 0; i < count; i++) {
        let_go(table, fd, gone[i], key_bytes);
    }
    free(gone);
}

int ltn_host_maps_read(struct ltn_host_maps *h, const struct ltn_probe_maps *maps,
                       struct ltn_arena *arena, struct ltn_host_window *ret)
{
    uint64_t errors = h->read_errors;
    *ret = (struct ltn_host_window){0};
    /* Processes first: the sums of one that ended by now change no more. */
    read_map(h, &h->procs, maps->host_processes, sizeof(uint32_t), sizeof(struct ltn_host_process));
    read_map(h, &h->blocks, maps->host_block, sizeof(struct ltn_block_key),
             sizeof(struct ltn_block_stats));
    read_map(h, &h->nets, maps->host_net, sizeof(struct ltn_net_key), sizeof(struct ltn_net_stats));
    read_map(h, &h->retransmits, maps->host_retransmits, sizeof(struct ltn_retransmit_key),
             sizeof(struct ltn_retransmit_stats));
    read_map(h, &h->files, maps->host_files, sizeof(struct ltn_file_key),
             sizeof(struct ltn_file_stats));
    int rc = build_procs(h, arena, ret);
    rc = rc == 0 ? build_blocks(h, arena, ret) : rc;
    rc = rc == 0 ? build_nets(h, arena, ret) : rc;
    rc = rc == 0 ? build_retransmits(h, arena, ret) : rc;
    rc = rc == 0 ? build_files(h, arena, ret) : rc;
    rc = rc == 0 ? take_events(h, arena, ret) : rc;
    ret->totals = h->totals;
    if (rc == 0 && errors == h->read_errors) {
        turn(h, &h->blocks, maps->host_block, sizeof(struct ltn_block_key),
             offsetof(struct ltn_block_key, tgid), false);
        turn(h, &h->nets, maps->host_net, sizeof(struct ltn_net_key),
             offsetof(struct ltn_net_key, tgid), true);
        turn(h, &h->retransmits, maps->host_retransmits, sizeof(struct ltn_retransmit_key), -1,
             true);
        turn(h, &h->files, maps->host_files, sizeof(struct ltn_file_key),
             offsetof(struct ltn_file_key, tgid), true);
        turn(h, &h->procs, maps->host_processes, sizeof(uint32_t), 0, false);
    }
    return rc;
}

/* ---- processes that were there before ---- */

#define ADOPT_MAX 256

/* Watches a process that /proc knows, unless it is watched already. */
static void watch(int fd, uint32_t tgid, uint32_t parent)
{
    struct ltn_proc proc;
    const uint64_t ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    if (ltn_proc_read_stat((pid_t)tgid, &proc) != 0 || ticks_per_s == 0) {
        return;
    }
    struct ltn_host_process fresh = {
        .start_boottime_ns = proc.start_ticks * (LTN_NS_PER_S / ticks_per_s),
        .parent_tgid = parent,
    };
    memcpy(fresh.comm, proc.comm, sizeof(fresh.comm));
    (void)bpf_map_update_elem(fd, &tgid, &fresh, BPF_NOEXIST);
}

/* Children of one thread, as /proc lists them, appended to the queue. */
static void add_children(uint32_t tgid, const char *tid, uint32_t *queue, uint32_t *parents,
                         size_t *count)
{
    char path[96];
    char text[4096];
    (void)snprintf(path, sizeof(path), "/proc/%u/task/%.16s/children", tgid, tid);
    if (ltn_file_read_head(path, text, sizeof(text)) <= 0) {
        return;
    }
    char *at = text;
    char *end = NULL;
    for (unsigned long pid = strtoul(at, &end, 10); end != at && *count < ADOPT_MAX;
         at = end, pid = strtoul(at, &end, 10)) {
        if (pid > 0 && pid <= INT_MAX && (*end == ' ' || *end == '\n')) {
            queue[*count] = (uint32_t)pid;
            parents[(*count)++] = tgid;
        }
    }
}

void ltn_host_maps_adopt(const struct ltn_probe_maps *maps, uint32_t tgid)
{
    uint32_t queue[ADOPT_MAX] = {tgid};
    uint32_t parents[ADOPT_MAX] = {0};
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        char path[64];
        if (i > 0) {
            watch(maps->host_processes, queue[i], parents[i]);
        }
        (void)snprintf(path, sizeof(path), "/proc/%u/task", queue[i]);
        DIR *tasks = opendir(path);
        const struct dirent *task;
        while (tasks != NULL && (task = readdir(tasks)) != NULL) {
            if (task->d_name[0] != '.') {
                add_children(queue[i], task->d_name, queue, parents, &count);
            }
        }
        if (tasks != NULL) {
            (void)closedir(tasks);
        }
    }
}
