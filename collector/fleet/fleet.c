/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "fleet/internal.h"

#define MAX_OPS_PER_PROC 256
#define MAX_OPS_PER_NODE 256

const double ltn_duration_bounds[LTN_DURATION_BOUNDS] = {
    1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1, 10};

void ltn_fleet_opts_default(struct ltn_fleet_opts *o)
{
    *o = (struct ltn_fleet_opts){
        .window_ns = 10 * LTN_NS_PER_S,
        .max_nodes = 20000,
        .max_processes = 200000,
        .max_jobs = 10000,
        .max_verdicts = 4096,
        .max_incidents = 4096,
    };
    ltn_straggler_opts_default(&o->straggler);
}

size_t ltn_fleet_key2(char *out, size_t size, const char *a, const char *b)
{
    int n = snprintf(out, size, "%s\x1f%s", a, b);
    return n < 0 ? 0 : ((size_t)n < size ? (size_t)n : size - 1);
}

size_t ltn_fleet_key3(char *out, size_t size, const char *a, const char *b, const char *c)
{
    int n = snprintf(out, size, "%s\x1f%s\x1f%s", a, b, c);
    return n < 0 ? 0 : ((size_t)n < size ? (size_t)n : size - 1);
}

struct ltn_fleet *ltn_fleet_new(const struct ltn_fleet_opts *opts,
                                const struct ltn_fleet_sink *sink)
{
    struct ltn_fleet *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    f->opts = *opts;
    if (sink != NULL)
        f->sink = *sink;
    f->straggler = ltn_straggler_new(&opts->straggler);
    f->closed = calloc(opts->max_verdicts > 0 ? opts->max_verdicts : 1, sizeof(*f->closed));
    ltn_map_init(&f->nodes, opts->max_nodes);
    ltn_map_init(&f->procs, opts->max_processes);
    ltn_map_init(&f->pids, opts->max_processes);
    ltn_map_init(&f->jobs, opts->max_jobs);
    ltn_map_init(&f->open, opts->max_processes);
    ltn_map_init(&f->incidents, opts->max_incidents);
    ltn_map_init(&f->incident_totals, 10000);
    if (f->straggler == NULL || f->closed == NULL) {
        ltn_fleet_free(f);
        return NULL;
    }
    return f;
}

static void free_proc(void *v)
{
    struct ltn_fleet_proc *p = v;
    ltn_map_done(&p->ops, free);
    free(p->place);
    free(p);
}

static void free_node(void *v)
{
    struct ltn_fleet_node *n = v;
    ltn_map_done(&n->ops, free);
    free(n);
}

static void free_group(void *v)
{
    struct ltn_fleet_group *g = v;
    free(g->members);
    free(g);
}

static void free_job(void *v)
{
    struct ltn_fleet_job *j = v;
    ltn_map_done(&j->procs, NULL);
    ltn_map_done(&j->places, NULL);
    ltn_map_done(&j->groups, free_group);
    free(j);
}

static void free_incident(void *v)
{
    struct ltn_fleet_incident *i = v;
    free(i->evidence);
    free(i);
}

void ltn_fleet_free(struct ltn_fleet *f)
{
    if (f == NULL)
        return;
    ltn_map_done(&f->procs, free_proc);
    ltn_map_done(&f->pids, NULL);
    ltn_map_done(&f->jobs, free_job);
    ltn_map_done(&f->nodes, free_node);
    ltn_map_done(&f->open, free);
    ltn_map_done(&f->incidents, free_incident);
    ltn_map_done(&f->incident_totals, free);
    ltn_straggler_free(f->straggler);
    free(f->closed);
    free(f->scratch);
    free(f);
}

/* ---- nodes ---- */

static struct ltn_fleet_node *get_node(struct ltn_fleet *f, const char *name)
{
    struct ltn_fleet_node *n = ltn_map_get_str(&f->nodes, name);
    if (n != NULL)
        return n;
    n = calloc(1, sizeof(*n));
    if (n == NULL || ltn_map_put_str(&f->nodes, name, n) != 0) {
        free(n);
        f->counters.refused_nodes++;
        return NULL;
    }
    (void)ltn_copy_str(n->name, sizeof(n->name), name);
    ltn_map_init(&n->ops, MAX_OPS_PER_NODE);
    n->first_seen_ns = f->now_ns;
    return n;
}

/* A window that ends in our future proves that the node's clock is ahead: nothing is sent before it
 * happened. One sample is enough, and the corrections of before are void. Likewise a clock that was
 * corrected and now agrees with ours was set right. True when this sample settled it. */
static bool clock_moved(const struct ltn_fleet *f, struct ltn_fleet_node *n, int64_t ahead_ns)
{
    int64_t w = (int64_t)f->opts.window_ns;
    bool jumped = ahead_ns > n->clock_offset_ns + w;
    bool right_again = n->clock_offset_ns > 0 && ahead_ns <= w && ahead_ns >= -3 * w;
    if (!jumped && !right_again)
        return false;
    n->clock_offset_ns = ahead_ns > w ? ahead_ns : 0;
    n->offset_samples[0] = ahead_ns;
    n->offset_n = 1;
    return true;
}

/* How far the node's clock is from ours, from the ends of its windows. Pushes come late, never
 * early, and late ones by chance: the smallest difference of several counts, and only when it is
 * beyond what lateness explains. */
static void watch_clock(struct ltn_fleet *f, struct ltn_fleet_node *n, uint64_t end_ns,
                        uint64_t received_ns)
{
    int64_t w = (int64_t)f->opts.window_ns;
    if (end_ns == 0)
        return;
    int64_t ahead_ns = (int64_t)end_ns - (int64_t)received_ns;
    if (clock_moved(f, n, ahead_ns)) {
        n->offset_at_ns = received_ns;
        return;
    }
    if (received_ns < n->offset_at_ns + f->opts.window_ns / 2)
        return;
    n->offset_at_ns = received_ns;
    const uint32_t cap = LTN_ARRAY_SIZE(n->offset_samples);
    n->offset_samples[n->offset_n++ % cap] = ahead_ns;
    uint32_t have = n->offset_n < cap ? n->offset_n : cap;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t i = 0; i < have; i++) {
        low = n->offset_samples[i] < low ? n->offset_samples[i] : low;
        high = n->offset_samples[i] > high ? n->offset_samples[i] : high;
    }
    if (low > w)
        n->clock_offset_ns = high;
    else if (have == cap) /* behind, or just late: only many samples tell */
        n->clock_offset_ns = high < -3 * w ? high : 0;
}

static void note_sequence(struct ltn_fleet *f, struct ltn_fleet_node *n,
                          const struct ltn_update_resource *r)
{
    if (strcmp(n->instance, r->instance) != 0) {
        (void)ltn_copy_str(n->instance, sizeof(n->instance), r->instance);
        n->sequence = r->sequence;
        return;
    }
    if (!r->has_sequence || r->sequence <= n->sequence)
        return;
    if (n->sequence != 0 && r->sequence - n->sequence > 1) {
        n->gaps += r->sequence - n->sequence - 1;
        f->counters.windows_gap += r->sequence - n->sequence - 1;
    }
    n->sequence = r->sequence;
}

static struct ltn_fleet_gpu *get_gpu(struct ltn_fleet_node *n, const char *uuid)
{
    for (size_t i = 0; i < n->gpu_count; i++)
        if (strcmp(n->gpus[i].uuid, uuid) == 0)
            return &n->gpus[i];
    size_t at = n->gpu_count;
    if (at == LTN_FLEET_GPUS) { /* a GPU was replaced: the one heard of longest ago goes */
        at = 0;
        for (size_t i = 1; i < LTN_FLEET_GPUS; i++)
            if (n->gpus[i].seen_ns < n->gpus[at].seen_ns)
                at = i;
    } else {
        n->gpu_count++;
    }
    memset(&n->gpus[at], 0, sizeof(n->gpus[at]));
    (void)ltn_copy_str(n->gpus[at].uuid, sizeof(n->gpus[at].uuid), uuid);
    return &n->gpus[at];
}

static void take_gpus(struct ltn_fleet *f, struct ltn_fleet_node *n, const struct ltn_update_gpu *u)
{
    for (; u != NULL; u = u->next) {
        struct ltn_fleet_gpu *g = get_gpu(n, u->uuid);
        if (u->model[0] != '\0')
            (void)ltn_copy_str(g->model, sizeof(g->model), u->model);
        g->utilization = u->utilization;
        g->memory_used = u->memory_used;
        g->memory_total = u->memory_total;
        g->power_w = u->power_w;
        g->temperature_c = u->temperature_c;
        g->clock_hz = u->clock_hz;
        g->clock_max_hz = u->clock_max_hz;
        g->pcie_width = u->pcie_width;
        g->pcie_width_max = u->pcie_width_max;
        g->pcie_generation = u->pcie_generation;
        g->pcie_generation_max = u->pcie_generation_max;
        g->errors_uncorrected = u->errors_uncorrected;
        g->clock_reasons = u->clock_reasons;
        g->has_reasons = u->has_reasons;
        g->seen_ns = f->now_ns;
    }
}

static void take_health(struct ltn_fleet_node *n, const struct ltn_update_health *h)
{
    if (!h->present)
        return;
    n->health = *h;
    n->health.drops = NULL;
    n->drop_count = 0;
    for (const struct ltn_update_drop *d = h->drops; d != NULL; d = d->next) {
        if (n->drop_count == LTN_FLEET_DROPS)
            break;
        struct ltn_fleet_drop *o = &n->drops[n->drop_count++];
        (void)ltn_copy_str(o->reason, sizeof(o->reason), d->reason);
        o->count = d->count;
    }
}

/* Windows in a row of another length before it is believed: single ones are short or long when an
 * agent starts or is held up. */
#define ODD_LENGTHS 3

static void watch_length(struct ltn_fleet *f, struct ltn_fleet_node *n,
                         const struct ltn_update_resource *r)
{
    uint64_t w = f->opts.window_ns;
    if (r->start_ns == 0 || r->end_ns <= r->start_ns || !r->has_sequence ||
        r->sequence == n->length_sequence)
        return;
    uint64_t length = r->end_ns - r->start_ns;
    uint64_t apart = length > w ? length - w : w - length;
    n->length_sequence = r->sequence;
    if (apart <= w / 4) {
        n->odd_lengths = 0;
        n->length_differs = false;
        n->agent_window_ns = length;
        return;
    }
    f->counters.windows_length++;
    if (n->odd_lengths < ODD_LENGTHS && ++n->odd_lengths < ODD_LENGTHS)
        return;
    n->agent_window_ns = length;
    if (!n->length_differs && f->sink.on_window_length != NULL)
        f->sink.on_window_length(f->sink.ctx, n->name, length);
    n->length_differs = true;
}

static struct ltn_fleet_node *take_node(struct ltn_fleet *f, const struct ltn_update *u,
                                        const struct ltn_update_resource *r)
{
    struct ltn_fleet_node *n = get_node(f, r->node);
    if (n == NULL)
        return NULL;
    n->last_seen_ns = f->now_ns;
    if (r->cluster[0] != '\0')
        (void)ltn_copy_str(n->cluster, sizeof(n->cluster), r->cluster);
    if (r->version[0] != '\0')
        (void)ltn_copy_str(n->version, sizeof(n->version), r->version);
    note_sequence(f, n, r);
    watch_clock(f, n, r->end_ns, u->received_ns);
    watch_length(f, n, r);
    if (!r->is_process) {
        take_gpus(f, n, r->gpus);
        take_health(n, &r->health);
    }
    return n;
}

/* ---- processes and jobs ---- */

static size_t pid_key(char *out, size_t size, const char *node, uint32_t pid)
{
    int n = snprintf(out, size, "%s\x1f%u", node, pid);
    return n < 0 ? 0 : ((size_t)n < size ? (size_t)n : size - 1);
}

static size_t proc_key(char *out, size_t size, const char *node, uint32_t pid, uint64_t start_ns)
{
    int n = snprintf(out, size, "%s\x1f%u\x1f%llu", node, pid, (unsigned long long)start_ns);
    return n < 0 ? 0 : ((size_t)n < size ? (size_t)n : size - 1);
}

/* The process of that id that started at about that time: another agent, or the same one after a
 * restart, may tell the start of a process a little differently. */
static struct ltn_fleet_proc *same_pid(const struct ltn_fleet *f, const struct ltn_fleet_node *node,
                                       const struct ltn_update_resource *r)
{
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = pid_key(key, sizeof(key), node->name, r->pid);
    struct ltn_fleet_proc *p = ltn_map_get(&f->pids, key, len);
    if (p == NULL || r->proc_start_ns == 0 || p->start_ns == 0)
        return NULL;
    uint64_t apart = p->start_ns > r->proc_start_ns ? p->start_ns - r->proc_start_ns
                                                    : r->proc_start_ns - p->start_ns;
    return apart < LTN_FLEET_SAME_START_NS ? p : NULL;
}

static struct ltn_fleet_proc *get_proc(struct ltn_fleet *f, struct ltn_fleet_node *node,
                                       const struct ltn_update_resource *r)
{
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = proc_key(key, sizeof(key), node->name, r->pid, r->proc_start_ns);
    struct ltn_fleet_proc *p = ltn_map_get(&f->procs, key, len);
    if (p != NULL)
        return p;
    p = same_pid(f, node, r);
    if (p != NULL)
        return p;
    p = calloc(1, sizeof(*p));
    if (p == NULL || ltn_map_put(&f->procs, key, len, p) != 0) {
        free(p);
        f->counters.refused_processes++;
        return NULL;
    }
    p->node = node;
    p->pid = r->pid;
    p->start_ns = r->proc_start_ns;
    p->rank = p->world_size = p->local_rank = p->role = -1;
    p->first_seen_ns = f->now_ns;
    ltn_map_init(&p->ops, MAX_OPS_PER_PROC);
    node->process_count++;
    len = pid_key(key, sizeof(key), node->name, r->pid);
    if (ltn_map_put(&f->pids, key, len, p) != 0)
        f->counters.refused_processes++; /* only its restarts cannot be told from others */
    return p;
}

static struct ltn_fleet_job *get_job(struct ltn_fleet *f, const char *key)
{
    struct ltn_fleet_job *j = ltn_map_get_str(&f->jobs, key);
    if (j != NULL)
        return j;
    j = calloc(1, sizeof(*j));
    if (j == NULL || ltn_map_put_str(&f->jobs, key, j) != 0) {
        free(j);
        f->counters.refused_jobs++;
        return NULL;
    }
    (void)ltn_copy_str(j->key, sizeof(j->key), key);
    ltn_map_init(&j->procs, f->opts.max_processes);
    ltn_map_init(&j->groups, 4096);
    ltn_map_init(&j->places, f->opts.max_processes);
    j->first_seen_ns = f->now_ns;
    return j;
}

static void leave_job(struct ltn_fleet *f, struct ltn_fleet_proc *p)
{
    char key[LTN_FLEET_KEY_BYTES];
    if (p->job == NULL)
        return;
    size_t len = proc_key(key, sizeof(key), p->node->name, p->pid, p->start_ns);
    ltn_fleet_group_leave(f, p);
    ltn_fleet_place_leave(p);
    p->replaced = false;
    (void)ltn_map_del(&p->job->procs, key, len);
    p->job = NULL;
    p->role = -1;
}

/* Forgets a job that all its processes have left for another one: it was a first guess. */
static void drop_left_job(struct ltn_fleet *f, struct ltn_fleet_job *j)
{
    if (j == NULL || j->procs.len > 0)
        return;
    size_t pos = 0;
    for (struct ltn_fleet_group *g; (g = ltn_map_next(&j->groups, &pos)) != NULL; pos = 0)
        ltn_fleet_group_drop(f, g);
    (void)ltn_map_del(&f->jobs, j->key, strlen(j->key));
    free_job(j);
}

/* The job by the agent's key, else by the largest communicator. */
static void join_job(struct ltn_fleet *f, struct ltn_fleet_proc *p,
                     const struct ltn_update_resource *r)
{
    char name[LTN_STRAGGLER_JOB_BYTES] = "";
    const struct ltn_fleet_comm *big = NULL;
    for (size_t i = 0; i < p->comm_count; i++)
        if (big == NULL || p->comms[i].size > big->size)
            big = &p->comms[i];
    if (r->job[0] != '\0')
        (void)ltn_copy_str(name, sizeof(name), r->job);
    else if (big != NULL)
        (void)snprintf(name, sizeof(name), "comm-%016llx", (unsigned long long)big->id);
    p->rank_given = r->rank >= 0;
    p->rank = r->rank >= 0 ? r->rank : (big != NULL ? big->rank : -1);
    p->world_size = r->world_size >= 0 ? r->world_size : (big != NULL ? big->size : -1);
    p->local_rank = r->local_rank;
    if (p->rank >= 0)
        (void)snprintf(p->key, sizeof(p->key), "%d", p->rank);
    else
        (void)snprintf(p->key, sizeof(p->key), "%.16s/%u", p->node->name, p->pid);
    if (name[0] == '\0' || (p->job != NULL && strcmp(p->job->key, name) == 0))
        return;
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = proc_key(key, sizeof(key), p->node->name, p->pid, p->start_ns);
    struct ltn_fleet_job *left = p->job;
    leave_job(f, p);
    drop_left_job(f, left);
    struct ltn_fleet_job *j = get_job(f, name);
    if (j != NULL && ltn_map_put(&j->procs, key, len, p) == 0)
        p->job = j;
}

static void take_comms(struct ltn_fleet *f, struct ltn_fleet_proc *p,
                       const struct ltn_update_comm *u)
{
    for (; u != NULL; u = u->next) {
        size_t i = 0;
        while (i < p->comm_count && p->comms[i].id != u->id)
            i++;
        if (i == LTN_FLEET_COMMS) { /* the one that moved longest ago makes room */
            i = 0;
            for (size_t k = 1; k < LTN_FLEET_COMMS; k++)
                if (p->comms[k].moved_ns < p->comms[i].moved_ns)
                    i = k;
            p->comms[i] = (struct ltn_fleet_comm){.id = 0};
        } else if (i == p->comm_count) {
            p->comm_count++;
        }
        struct ltn_fleet_comm *c = &p->comms[i];
        if (c->id != u->id || u->sequence < c->sequence)
            *c = (struct ltn_fleet_comm){.id = u->id, .first_sequence = u->sequence};
        if (u->sequence > c->sequence)
            c->moved_ns = f->now_ns;
        c->rank = u->rank;
        c->size = u->size;
        c->sequence = u->sequence;
    }
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static struct ltn_fleet_op *node_op(struct ltn_fleet *f, struct ltn_fleet_node *n, const char *key,
                                    size_t len, const struct ltn_update_op *u)
{
    struct ltn_fleet_op *o = ltn_map_get(&n->ops, key, len);
    if (o != NULL)
        return o;
    o = calloc(1, sizeof(*o));
    if (o == NULL || ltn_map_put(&n->ops, key, len, o) != 0) {
        free(o);
        f->counters.refused_ops++;
        return NULL;
    }
    (void)ltn_copy_str(o->source, sizeof(o->source), u->source);
    (void)ltn_copy_str(o->op, sizeof(o->op), u->op);
    return o;
}

/* Adds what grew since the process's last totals to the node's sums. */
static void take_op(struct ltn_fleet *f, struct ltn_fleet_proc *p, const struct ltn_update_op *u)
{
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = ltn_fleet_key2(key, sizeof(key), u->source, u->op);
    struct ltn_update_op *last = ltn_map_get(&p->ops, key, len);
    if (last == NULL) {
        last = calloc(1, sizeof(*last));
        if (last == NULL || ltn_map_put(&p->ops, key, len, last) != 0) {
            free(last);
            f->counters.refused_ops++;
            return;
        }
    }
    struct ltn_fleet_op *o = node_op(f, p->node, key, len, u);
    if (o == NULL)
        return;
    if (u->has_counts) {
        o->calls += grown(u->calls, last->calls);
        o->errors += grown(u->errors, last->errors);
        o->bytes += grown(u->bytes, last->bytes);
        last->calls += grown(u->calls, last->calls);
        last->errors += grown(u->errors, last->errors);
        last->bytes += grown(u->bytes, last->bytes);
    }
    if (!u->has_duration)
        return;
    o->has_duration = true;
    for (size_t i = 0; i < LTN_DURATION_BUCKETS; i++) {
        o->buckets[i] += grown(u->buckets[i], last->buckets[i]);
        last->buckets[i] += grown(u->buckets[i], last->buckets[i]);
    }
    if (u->duration_s > last->duration_s) {
        o->duration_s += u->duration_s - last->duration_s;
        last->duration_s = u->duration_s;
    }
}

/* True for what the agent before the present one still sends, or a second one beside it: its totals
 * are its own and must not be mixed with those of the present one. */
static bool is_of_former(const struct ltn_fleet *f, const struct ltn_fleet_proc *p,
                         const struct ltn_update_resource *r)
{
    return p->last_instance[0] != '\0' && strcmp(p->last_instance, r->instance) == 0 &&
           f->now_ns < p->instance_seen_ns + 3 * f->opts.window_ns;
}

/* True for the newest window of the process, also when it comes again: late ones must not put
 * counters back. */
static bool is_newest(struct ltn_fleet *f, struct ltn_fleet_proc *p,
                      const struct ltn_update_resource *r)
{
    p->instance_seen_ns = f->now_ns;
    if (strcmp(p->seen_instance, r->instance) != 0) {
        (void)ltn_copy_str(p->last_instance, sizeof(p->last_instance), p->seen_instance);
        (void)ltn_copy_str(p->seen_instance, sizeof(p->seen_instance), r->instance);
        ltn_map_done(&p->ops, free); /* another start of the agent counts anew */
        ltn_map_init(&p->ops, MAX_OPS_PER_PROC);
        p->comm_count = 0;
        memset(p->comms, 0, sizeof(p->comms)); /* else their counts go on from before */
        p->first_steps = p->steps_total = 0;
        p->seen_sequence = 0;
        p->slot_sequence = 0;
    }
    if (r->has_sequence && r->sequence < p->seen_sequence)
        return false;
    p->seen_sequence = r->sequence;
    return true;
}

static void take_process(struct ltn_fleet *f, struct ltn_fleet_node *node,
                         const struct ltn_update_resource *r)
{
    struct ltn_fleet_proc *p = get_proc(f, node, r);
    if (p == NULL)
        return;
    bool former = is_of_former(f, p, r);
    bool newest = !former && is_newest(f, p, r);
    p->last_seen_ns = f->now_ns;
    (void)ltn_copy_str(p->comm, sizeof(p->comm), r->comm);
    (void)ltn_copy_str(p->gpu_uuid, sizeof(p->gpu_uuid), r->gpu_uuid);
    for (const struct ltn_update_op *o = former ? NULL : r->ops; o != NULL; o = o->next)
        take_op(f, p, o);
    if (newest) {
        take_comms(f, p, r->comms);
        join_job(f, p, r);
    }
    if (p->job != NULL) {
        p->job->last_seen_ns = f->now_ns;
        if (p->world_size > p->job->world_size)
            p->job->world_size = p->world_size;
    }
    if (!r->steps.present || r->end_ns == 0)
        return;
    if (newest) {
        if (p->first_steps == 0 || r->steps.steps_total < p->steps_total)
            p->first_steps = r->steps.steps_total;
        p->steps_total = r->steps.steps_total;
    }
    ltn_fleet_rank_window(f, p, r);
}

void ltn_fleet_apply(struct ltn_fleet *f, const struct ltn_update *u, uint64_t now_ns)
{
    f->now_ns = now_ns;
    /* Nodes first: the state of a GPU belongs to the windows of the processes beside it. */
    for (const struct ltn_update_resource *r = u->resources; r != NULL; r = r->next)
        if (!r->is_process)
            (void)take_node(f, u, r);
    for (const struct ltn_update_resource *r = u->resources; r != NULL; r = r->next) {
        if (!r->is_process)
            continue;
        struct ltn_fleet_node *n = take_node(f, u, r);
        if (n != NULL)
            take_process(f, n, r);
    }
    for (const struct ltn_update_incident *i = u->incidents; i != NULL; i = i->next)
        ltn_fleet_take_incident(f, i);
}

/* ---- time ---- */

/* Windows of silence since then. */
static uint64_t silence(const struct ltn_fleet *f, uint64_t since_ns)
{
    return f->now_ns > since_ns ? (f->now_ns - since_ns) / f->opts.window_ns : 0;
}

static uint64_t group_heard_ns(const struct ltn_fleet_group *g)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < g->n; i++)
        newest = g->members[i]->last_window_ns > newest ? g->members[i]->last_window_ns : newest;
    return newest;
}

static void tick_job(struct ltn_fleet *f, struct ltn_fleet_job *j)
{
    size_t pos = 0;
    for (struct ltn_fleet_group *g; (g = ltn_map_next(&j->groups, &pos)) != NULL;) {
        ltn_fleet_group_run(f, g);
        if (silence(f, group_heard_ns(g)) < LTN_FLEET_GROUP_GONE)
            continue;
        ltn_fleet_group_drop(f, g);
        pos = 0;
    }
}

static void drop_proc(struct ltn_fleet *f, struct ltn_fleet_proc *p)
{
    char key[LTN_FLEET_KEY_BYTES];
    leave_job(f, p);
    p->node->process_count--;
    size_t len = pid_key(key, sizeof(key), p->node->name, p->pid);
    if (ltn_map_get(&f->pids, key, len) == p)
        (void)ltn_map_del(&f->pids, key, len);
    len = proc_key(key, sizeof(key), p->node->name, p->pid, p->start_ns);
    (void)ltn_map_del(&f->procs, key, len);
    free_proc(p);
}

/* Verdicts that came back from the store for ranks that never did. */
static void drop_orphans(struct ltn_fleet *f)
{
    size_t pos = 0;
    for (struct ltn_fleet_verdict *o; (o = ltn_map_next(&f->open, &pos)) != NULL;) {
        struct ltn_fleet_job *j = ltn_map_get_str(&f->jobs, o->v.job);
        bool known = j != NULL && ltn_map_get_str(&j->groups, o->v.group) != NULL;
        if (known || silence(f, o->heard_ns) < LTN_FLEET_GROUP_GONE)
            continue;
        struct ltn_straggler_verdict v = o->v;
        ltn_straggler_forget(f->straggler, v.job, v.group, NULL, f->now_ns, ltn_fleet_on_verdict,
                             f);
        pos = 0;
    }
}

void ltn_fleet_tick(struct ltn_fleet *f, uint64_t now_ns)
{
    f->now_ns = now_ns;
    size_t pos = 0;
    for (struct ltn_fleet_job *j; (j = ltn_map_next(&f->jobs, &pos)) != NULL;)
        tick_job(f, j);
    pos = 0;
    for (struct ltn_fleet_proc *p; (p = ltn_map_next(&f->procs, &pos)) != NULL;) {
        if (silence(f, p->last_seen_ns) < LTN_FLEET_PROC_GONE)
            continue;
        drop_proc(f, p);
        pos = 0;
    }
    pos = 0;
    for (struct ltn_fleet_job *j; (j = ltn_map_next(&f->jobs, &pos)) != NULL;) {
        if (j->procs.len > 0 || j->groups.len > 0 ||
            silence(f, j->last_seen_ns) < LTN_FLEET_JOB_GONE)
            continue;
        (void)ltn_map_del(&f->jobs, j->key, strlen(j->key));
        free_job(j);
        pos = 0;
    }
    drop_orphans(f);
}

size_t ltn_fleet_job_ranks(const struct ltn_fleet_job *job, size_t *ret_replaced)
{
    size_t n = 0, replaced = 0, pos = 0;
    for (const struct ltn_fleet_proc *p; (p = ltn_map_next(&job->procs, &pos)) != NULL;) {
        n += p->is_rank && !p->replaced ? 1 : 0;
        replaced += p->replaced ? 1 : 0;
    }
    if (ret_replaced != NULL)
        *ret_replaced = replaced;
    return job->world_size > 0 && n > (size_t)job->world_size ? (size_t)job->world_size : n;
}

bool ltn_fleet_node_up(const struct ltn_fleet *f, const struct ltn_fleet_node *n, uint64_t now_ns)
{
    return now_ns < n->last_seen_ns + 3 * f->opts.window_ns;
}

const struct ltn_fleet_window *ltn_fleet_newest(const struct ltn_fleet_proc *p)
{
    const struct ltn_fleet_window *best = NULL;
    for (size_t i = 0; i < LTN_FLEET_WINDOWS; i++)
        if (p->windows[i].slot != 0 && (best == NULL || p->windows[i].slot > best->slot))
            best = &p->windows[i];
    return best;
}

const struct ltn_fleet_past *ltn_fleet_past(const struct ltn_fleet_proc *p, size_t i)
{
    if (i >= LTN_FLEET_HISTORY)
        return NULL;
    const struct ltn_fleet_past *w =
        &p->past[(p->past_at + LTN_FLEET_HISTORY - 1 - i) % LTN_FLEET_HISTORY];
    return w->slot != 0 ? w : NULL;
}
