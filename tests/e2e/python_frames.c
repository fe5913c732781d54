// SPDX-License-Identifier: Apache-2.0
// Watches a test function in all processes: one line of JSON for each call, with the Python frames
// as the kernel programs and the symbol room see them. Reads commands, one a line:
//     add PID        finds the Python of a process and tells the kernel
//     walk PID TID   walks a thread from outside
//     count          processes that the kernel knows of
//     quit           reads the rest and ends
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "discover/elf.h"
#include "symbol/python_codes.h"
#include "symbol/python_find.h"
#include "symbol/python_walk.h"
#include "tests/e2e/python_probe.h"

#include "python_probe.skel.h"

enum { CODES_BYTES = 32 << 20, LINE_BYTES = 1 << 20, DRAIN_MS = 20 };

struct watch {
    struct python_probe *skel;
    struct ltn_python_codes *codes;
    struct ltn_buf line;
    struct python_tick *queue; /* ticks read, not yet named */
    size_t queued;
    size_t room;
    uint64_t events;
    uint64_t walk_ns;
    uint64_t code_records;
};

static void put_frame(struct watch *w, struct ltn_json *j, const struct ltn_python_frame *f)
{
    struct ltn_python_line line;
    int rc = ltn_python_codes_name(w->codes, f, &line);
    if (rc == LTN_ERR_CLOSED) {
        return;
    }
    if (rc < 0) {
        ltn_json_null(j);
        if (rc == LTN_ERR_NOT_FOUND && f->identity != 0) {
            bpf_map_delete_elem(bpf_map__fd(w->skel->maps.python_codes), &f->identity);
        }
        return;
    }
    ltn_json_open_array(j);
    ltn_json_str(j, line.file);
    ltn_json_str(j, line.function);
    ltn_json_u64(j, line.line);
    ltn_json_bool(j, line.exact);
    ltn_json_close_array(j);
}

static void put_tick(struct watch *w, const struct python_tick *t)
{
    struct ltn_json j;
    w->events++;
    w->walk_ns += t->walk_ns;
    ltn_buf_reset(&w->line);
    ltn_json_init(&j, &w->line);
    ltn_json_open_object(&j);
    ltn_json_kv_u64(&j, "serial", t->serial);
    ltn_json_kv_u64(&j, "tgid", t->tgid);
    ltn_json_kv_u64(&j, "tid", t->tid);
    ltn_json_kv_u64(&j, "walk_ns", t->walk_ns);
    ltn_json_kv_bool(&j, "known", t->known != 0);
    ltn_json_kv_u64(&j, "flags", t->flags);
    ltn_json_key(&j, "frames");
    ltn_json_open_array(&j);
    for (uint32_t i = 0; i < t->count && i < LTN_STACK_PYTHON; i++) {
        put_frame(w, &j, &t->frames[i]);
    }
    ltn_json_close_array(&j);
    ltn_json_close_object(&j);
    puts(ltn_buf_str(&w->line));
}

/* A tick comes after the code objects it needs, but on a ring of its own: it waits until the other
 * ring has been read. */
static int on_tick(void *arg, void *data, size_t size)
{
    struct watch *w = arg;
    if (size < sizeof(*w->queue)) {
        return 0;
    }
    if (w->queued == w->room) {
        size_t room = w->room == 0 ? 1024 : w->room * 2;
        struct python_tick *more = realloc(w->queue, room * sizeof(*more));
        if (more == NULL) {
            return -ENOMEM;
        }
        w->queue = more;
        w->room = room;
    }
    memcpy(&w->queue[w->queued++], data, sizeof(*w->queue));
    return 0;
}

static int on_record(void *arg, void *data, size_t size)
{
    struct watch *w = arg;
    const struct ltn_event_python_code *e = data;
    if (size >= sizeof(e->hdr) && e->hdr.type == LTN_EVENT_PYTHON_CODE) {
        w->code_records++;
        int rc = ltn_python_codes_add(w->codes, e, e->hdr.size);
        if (rc < 0) {
            fprintf(stderr, "code record: %s\n", ltn_err_str(rc));
        }
    }
    return 0;
}

/* Loads the one program and those about processes; the others are the agent's. */
static int load(struct watch *w)
{
    w->skel = python_probe__open();
    if (w->skel == NULL) {
        return -errno;
    }
    struct bpf_program *prog;
    bpf_object__for_each_program(prog, w->skel->obj)
    {
        (void)bpf_program__set_autoload(prog, false);
    }
    struct bpf_program *const wanted[] = {w->skel->progs.on_tick, w->skel->progs.on_fork,
                                          w->skel->progs.on_exec, w->skel->progs.on_exit};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        (void)bpf_program__set_autoload(wanted[i], true);
    }
    /* Nothing may be lost here, and this program is slower than the agent. */
    (void)bpf_map__set_max_entries(w->skel->maps.calls, 64U << 20);
    return python_probe__load(w->skel);
}

static int attach(struct watch *w, const char *lib)
{
    struct ltn_elf *elf = NULL;
    struct ltn_elf_sym sym = {.name = "python_tick"};
    int rc = ltn_elf_open(lib, &elf);
    if (rc == 0) {
        rc = ltn_elf_lookup(elf, LTN_ELF_DYNSYM, &sym, 1);
    }
    ltn_elf_free(elf);
    if (rc < 0 || !sym.found) {
        return rc < 0 ? rc : LTN_ERR_NOT_FOUND;
    }
    w->skel->links.on_tick =
        bpf_program__attach_uprobe(w->skel->progs.on_tick, false, -1, lib, (size_t)sym.file_offset);
    w->skel->links.on_fork = bpf_program__attach(w->skel->progs.on_fork);
    w->skel->links.on_exec = bpf_program__attach(w->skel->progs.on_exec);
    w->skel->links.on_exit = bpf_program__attach(w->skel->progs.on_exit);
    return w->skel->links.on_tick != NULL && w->skel->links.on_fork != NULL &&
                   w->skel->links.on_exec != NULL && w->skel->links.on_exit != NULL
               ? 0
               : -errno;
}

static void add(struct watch *w, uint32_t pid)
{
    struct ltn_python_process p;
    struct ltn_errinfo info = {0};
    char version[LTN_PYTHON_VERSION_BYTES];
    int rc = ltn_python_find((pid_t)pid, &p, &info);
    if (rc == 0) {
        ltn_python_version_name(p.version, version);
        rc = bpf_map_update_elem(bpf_map__fd(w->skel->maps.python_processes), &pid, &p, BPF_ANY);
    }
    if (rc == 0) {
        fprintf(stderr, "added %u Python %s\n", pid, version);
    } else {
        fprintf(stderr, "refused %u: %s: %s\n", pid, ltn_err_str(rc), info.msg);
    }
}

/* Walks a thread from outside, as it stands now. */
static void walk(struct watch *w, const char *words)
{
    char *end = NULL;
    uint32_t pid = (uint32_t)strtoul(words, &end, 10);
    uint32_t tid = (uint32_t)strtoul(end, NULL, 10);
    struct ltn_python_process p;
    static struct ltn_stack_builder b;
    struct ltn_json j;
    ltn_stack_builder_init(&b);
    int rc = bpf_map_lookup_elem(bpf_map__fd(w->skel->maps.python_processes), &pid, &p);
    rc = rc == 0 ? ltn_python_walk((pid_t)pid, (pid_t)tid, &p, &b) : rc;
    ltn_buf_reset(&w->line);
    ltn_json_init(&j, &w->line);
    ltn_json_open_object(&j);
    ltn_json_kv_u64(&j, "tid", tid);
    ltn_json_kv_str(&j, "answer", ltn_err_str(rc));
    ltn_json_key(&j, "frames");
    ltn_json_open_array(&j);
    for (size_t i = 0; i < b.count; i++) {
        const char *texts = ltn_buf_str(&b.texts);
        ltn_json_open_array(&j);
        ltn_json_str(&j, texts + (uintptr_t)b.frames[i].file);
        ltn_json_str(&j, texts + (uintptr_t)b.frames[i].function);
        ltn_json_u64(&j, b.frames[i].line);
        ltn_json_close_array(&j);
    }
    ltn_json_close_array(&j);
    ltn_json_close_object(&j);
    fprintf(stderr, "walked %s\n", ltn_buf_str(&w->line));
    ltn_stack_builder_done(&b);
}

/* Entries of the map of processes. */
static unsigned count_processes(const struct watch *w)
{
    unsigned count = 0;
    uint32_t key;
    uint32_t next;
    int fd = bpf_map__fd(w->skel->maps.python_processes);
    for (int rc = bpf_map_get_next_key(fd, NULL, &next); rc == 0;
         rc = bpf_map_get_next_key(fd, &key, &next)) {
        key = next;
        count++;
    }
    return count;
}

/* False: no more. */
static bool command(struct watch *w)
{
    char line[64];
    uint64_t pid;
    if (fgets(line, sizeof(line), stdin) == NULL || strncmp(line, "quit", 4) == 0) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "add ", 4) == 0 && ltn_parse_u64(line + 4, &pid)) {
        add(w, (uint32_t)pid);
    } else if (strncmp(line, "walk ", 5) == 0) {
        walk(w, line + 5);
    } else if (strcmp(line, "count") == 0) {
        fprintf(stderr, "count %u\n", count_processes(w));
    }
    return true;
}

static void serve(struct watch *w, struct ring_buffer *calls, struct ring_buffer *ticks)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};
    bool more = true;
    while (more) {
        if (poll(&p, 1, DRAIN_MS) > 0) {
            more = command(w);
        }
        (void)ring_buffer__consume(ticks);
        (void)ring_buffer__consume(calls);
        for (size_t i = 0; i < w->queued; i++) {
            put_tick(w, &w->queue[i]);
        }
        w->queued = 0;
    }
}

static int run(struct watch *w, const char *lib)
{
    int rc = load(w);
    if (rc == 0) {
        rc = attach(w, lib);
    }
    if (rc < 0) {
        return rc;
    }
    struct ring_buffer *calls =
        ring_buffer__new(bpf_map__fd(w->skel->maps.calls), on_record, w, NULL);
    struct ring_buffer *ticks =
        ring_buffer__new(bpf_map__fd(w->skel->maps.ticks), on_tick, w, NULL);
    rc = calls == NULL || ticks == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        fprintf(stderr, "ready\n");
        serve(w, calls, ticks);
    }
    ring_buffer__free(calls);
    ring_buffer__free(ticks);
    return rc;
}

int main(int argc, char **argv)
{
    struct watch w = {.codes = ltn_python_codes_new(CODES_BYTES)};
    if (argc != 2 || w.codes == NULL) {
        fprintf(stderr, "usage: python_frames LIBRARY\n");
        return 2;
    }
    ltn_buf_init(&w.line, LINE_BYTES);
    int rc = run(&w, argv[1]);
    struct ltn_python_codes_stats s = ltn_python_codes_stats(w.codes);
    fprintf(stderr,
            "%s: events %llu, %llu ns each; code records %llu, codes %zu in %zu bytes, malformed "
            "%llu, unknown %llu, rejected %llu\n",
            rc < 0 ? ltn_err_str(rc) : "done", (unsigned long long)w.events,
            (unsigned long long)(w.events > 0 ? w.walk_ns / w.events : 0),
            (unsigned long long)w.code_records, s.codes_now, s.bytes_now,
            (unsigned long long)s.malformed_total, (unsigned long long)s.unknown_total,
            (unsigned long long)s.rejected_total);
    python_probe__destroy(w.skel);
    ltn_python_codes_free(w.codes);
    ltn_buf_done(&w.line);
    free(w.queue);
    return rc < 0;
}
