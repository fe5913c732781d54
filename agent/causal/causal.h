/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal incidents of a node: windows and call records in, changes of incidents out. No I/O and no
 * clock: time is what the windows say. A cause is named when its measured part explains at least
 * 80 % of what was lost, else the incident is called unexplained and shows the split. Waiting for
 * the device or for peers is never held against a process. docs/incidents.md says what is
 * recognised by what. One thread at a time.
 */
#ifndef LTN_CAUSAL_CAUSAL_H
#define LTN_CAUSAL_CAUSAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "capture/window.h"

#define LTN_CAUSAL_TITLE_BYTES 224
#define LTN_CAUSAL_CAUSE_BYTES 48 /* what a collector keeps of a cause */

/* What an incident is about; the name is the value of the column "kind". */
enum ltn_causal_kind {
    LTN_CAUSAL_CPU = 0,     /* "cpu_contention" */
    LTN_CAUSAL_FAULTS,      /* "page_faults" */
    LTN_CAUSAL_IO,          /* "io_wait" */
    LTN_CAUSAL_UNEXPLAINED, /* "unexplained" */
    LTN_CAUSAL_MEMCPY,      /* "memcpy_bound" */
    LTN_CAUSAL_ALLOC,       /* "alloc_spike" */
    LTN_CAUSAL_COLD,        /* "cold_start" */
    LTN_CAUSAL_ERROR,       /* "cuda_error" */
    LTN_CAUSAL_MEMORY,      /* "device_memory" */
    LTN_CAUSAL_HANG,        /* "collective_hang" */
    LTN_CAUSAL_OOM,         /* "oom_kill" */
    LTN_CAUSAL_PRESSURE,    /* "memory_pressure" */
    LTN_CAUSAL_KINDS,
};
/* Static storage. */
const char *ltn_causal_kind_name(enum ltn_causal_kind kind);

enum ltn_causal_severity {
    LTN_CAUSAL_LOW,
    LTN_CAUSAL_MEDIUM,
    LTN_CAUSAL_HIGH,
    LTN_CAUSAL_CRITICAL
};
/* "LOW", "MEDIUM", "HIGH", "CRITICAL". Static storage. */
const char *ltn_causal_severity_name(enum ltn_causal_severity severity);

/* One change of an incident; valid during the call that hands it over. */
struct ltn_causal_change {
    const char *id; /* 16 hexadecimal digits, the same for every change of one incident */
    uint64_t time_ns;
    uint64_t opened_ns;
    const char *state; /* "open", "update", "closed" */
    enum ltn_causal_kind kind;
    enum ltn_causal_severity severity;
    const char *title;
    const char *cause;      /* "" when unexplained */
    double explained_share; /* 0..1, negative when unknown */
    uint64_t count;         /* windows it was seen in, or errors */
    uint32_t pid;           /* 0: the node */
    uint64_t proc_start_ns;
    const char *evidence; /* JSON object */
};

struct ltn_causal_opts {
    const char *node;        /* part of ids; copied */
    double excess;           /* growth over the usual that is worth an incident; 0: 0.15 */
    uint64_t hang_ns;        /* a collective is not called hung before; 0: 30 s */
    unsigned max_open;       /* incidents open at a time; 0: 256 */
    unsigned max_per_window; /* incidents opened in a window; 0: 32 */
    void *ctx;
    void (*change)(void *ctx, const struct ltn_causal_change *change);
};

struct ltn_causal;

/* NULL when memory is out. Free with ltn_causal_free. */
struct ltn_causal *ltn_causal_new(const struct ltn_causal_opts *opts) ltn_must_check;
void ltn_causal_free(struct ltn_causal *c);

/* Takes call records, those of a window before the window itself. Borrowed. */
void ltn_causal_calls(struct ltn_causal *c, const struct ltn_call *calls, size_t n);

/* Takes a window; changes come through opts.change before it returns. Borrowed. */
void ltn_causal_window(struct ltn_causal *c, const struct ltn_window *w);

/* The agent ends: closes what is open. */
void ltn_causal_end(struct ltn_causal *c, uint64_t now_ns);

struct ltn_causal_stats {
    uint64_t opened_total;
    uint64_t closed_total;
    uint64_t open;
    uint64_t suppressed_total; /* not opened because of a cap */
    uint64_t refused_total;    /* processes over the ceiling, or memory was out */
};
struct ltn_causal_stats ltn_causal_stats(const struct ltn_causal *c);

#endif /* LTN_CAUSAL_CAUSAL_H */
