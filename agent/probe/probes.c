/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "bpf/event.h"
#include "probe/families.h"
#include "probe/probes_internal.h"
#include "probe/state.h"

void ltn_probes_forget_stack(const struct ltn_probes *p, uint64_t stack_id)
{
    (void)bpf_map_delete_elem(bpf_map__fd(p->skel->maps.stacks_sent), &stack_id);
}

int ltn_probes_set_python(const struct ltn_probes *p, pid_t pid,
                          const struct ltn_python_process *python)
{
    uint32_t key = (uint32_t)pid;
    int fd = bpf_map__fd(p->skel->maps.python_processes);
    return bpf_map_update_elem(fd, &key, python, BPF_ANY) == 0 ? 0 : -errno;
}

bool ltn_probes_get_python(const struct ltn_probes *p, pid_t pid, struct ltn_python_process *ret)
{
    uint32_t key = (uint32_t)pid;
    return bpf_map_lookup_elem(bpf_map__fd(p->skel->maps.python_processes), &key, ret) == 0;
}

void ltn_probes_forget_code(const struct ltn_probes *p, uint64_t identity)
{
    (void)bpf_map_delete_elem(bpf_map__fd(p->skel->maps.python_codes), &identity);
}

int ltn_probes_add_pid(struct ltn_probes *p, pid_t pid)
{
    uint32_t key = (uint32_t)pid;
    uint32_t one = 1;
    int fd = bpf_map__fd(p->skel->maps.scope_tgids);
    return bpf_map_update_elem(fd, &key, &one, BPF_ANY) == 0 ? 0 : -errno;
}

int ltn_probes_del_pid(struct ltn_probes *p, pid_t pid)
{
    uint32_t key = (uint32_t)pid;
    int fd = bpf_map__fd(p->skel->maps.scope_tgids);
    return bpf_map_delete_elem(fd, &key) == 0 ? 0 : -errno;
}

void ltn_probes_set_off(struct ltn_probes *p, uint32_t off)
{
    __atomic_store_n(&p->skel->data->control.off, off, __ATOMIC_RELAXED);
}

uint32_t *ltn_probes_thin(struct ltn_probes *p)
{
    return (uint32_t *)&p->skel->data->control.thin;
}

const struct bpf_object *ltn_probes_object(const struct ltn_probes *p)
{
    return p->skel->obj;
}

struct ltn_probe_maps ltn_probes_maps(const struct ltn_probes *p)
{
    const struct agent *s = p->skel;
    return (struct ltn_probe_maps){
        .op_stats = bpf_map__fd(s->maps.op_stats),
        .threads = bpf_map__fd(s->maps.threads),
        .in_flight = bpf_map__fd(s->maps.in_flight),
        .processes = bpf_map__fd(s->maps.processes),
        .comms = bpf_map__fd(s->maps.comms),
        .graphs = bpf_map__fd(s->maps.graphs),
        .preemptors = bpf_map__fd(s->maps.preemptors),
        .slow_ns = bpf_map__fd(s->maps.slow_ns),
        .impossible = bpf_map__fd(s->maps.impossible),
        .calls = bpf_map__fd(s->maps.calls),
        .critical = bpf_map__fd(s->maps.critical),
        .drops = bpf_map__fd(s->maps.drops),
        .seen = bpf_map__fd(s->maps.seen),
        .host_processes = bpf_map__fd(s->maps.host_processes),
        .host_block = bpf_map__fd(s->maps.host_block),
        .host_net = bpf_map__fd(s->maps.host_net),
        .host_retransmits = bpf_map__fd(s->maps.host_retransmits),
        .host_files = bpf_map__fd(s->maps.host_files),
        .stacks_sent = bpf_map__fd(s->maps.stacks_sent),
    };
}

void ltn_probes_info(const struct ltn_probes *p, struct ltn_probes_info *ret)
{
    *ret = (struct ltn_probes_info){
        .kind = p->kind,
        .sched = p->sched,
        .stacks = p->stacks,
        .map_bytes = p->map_bytes,
        .host = p->host,
    };
    ret->files = p->file_count;
    for (size_t i = 0; i < p->file_count; i++) {
        const struct ltn_attached *a = &p->files[i];
        ret->functions += a->site_count;
        for (size_t k = 0; k < a->site_count; k++) {
            ret->single_stepped += a->sites[k].site.kind == LTN_SITE_SINGLE_STEPPED;
        }
    }
}

const struct ltn_probe_site *ltn_probes_next(const struct ltn_probes *p, size_t *pos)
{
    size_t at = (*pos)++;
    for (size_t i = 0; i < p->file_count; i++) {
        if (at < p->files[i].site_count) {
            return &p->files[i].sites[at];
        }
        at -= p->files[i].site_count;
    }
    return NULL;
}

const char *ltn_probes_note(const struct ltn_probes *p)
{
    return ltn_buf_str(&p->note);
}

const char *ltn_probes_host_note(const struct ltn_probes *p)
{
    return ltn_buf_str(&p->host_note);
}

const char *ltn_probes_family_name(uint32_t family)
{
    return ltn_families_name(family);
}
