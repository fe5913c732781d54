// SPDX-License-Identifier: Apache-2.0
// Driver: streams, events, synchronisation, host functions.
#include "cuda_api.h"

#include <stdlib.h>

static _Thread_local struct sim_stream *t_default[SIM_MAX_DEVICES];

struct sim_stream *sim_stream_of(CUstream handle, int per_thread)
{
    uintptr_t value = (uintptr_t)handle;
    if (value > 2)
        return handle;
    struct sim_device *dev;
    if (sim_ctx_use(&dev) != CUDA_OK)
        return NULL;
    if (value == 2 || (value == 0 && per_thread)) {
        if (t_default[dev->ordinal] == NULL)
            t_default[dev->ordinal] = sim_stream_new(dev, 0);
        return t_default[dev->ordinal];
    }
    return dev->null_stream;
}

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc != CUDA_OK)
        return rc;
    if (stream == NULL || flags > 1)
        return CUDA_EINVAL;
    struct sim_stream *s = sim_stream_new(dev, flags);
    if (s == NULL)
        return CUDA_ENOMEM;
    *stream = s;
    return CUDA_OK;
}

CU_FN(cuStreamCreate)(CUstream *stream, unsigned flags)
{
    SIM_COUNT(cuStreamCreate);
    return stream_create(stream, flags);
}

CU_FN(cuStreamCreateWithPriority)(CUstream *stream, unsigned flags, int priority)
{
    SIM_COUNT(cuStreamCreateWithPriority);
    (void)priority;
    return stream_create(stream, flags);
}

CU_FN(cuStreamDestroy_v2)(CUstream stream)
{
    SIM_COUNT(cuStreamDestroy_v2);
    if ((uintptr_t)stream <= 2)
        return CUDA_EHANDLE;
    sim_stream_free(stream);
    return CUDA_OK;
}

static CUresult do_cuStreamSynchronize(int pt, CUstream stream)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    return s == NULL ? CUDA_ECTX : sim_stream_sync(s, false);
}
CU_PT(cuStreamSynchronize, _ptsz, (CUstream stream), stream)

static CUresult do_cuStreamQuery(int pt, CUstream stream)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL)
        return CUDA_ECTX;
    return sim_stream_reached(s, s->submitted) ? CUDA_OK : CUDA_ENOTREADY;
}
CU_PT(cuStreamQuery, _ptsz, (CUstream stream), stream)

static CUresult do_cuStreamWaitEvent(int pt, CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL || event == NULL)
        return s == NULL ? CUDA_ECTX : CUDA_EHANDLE;
    return sim_event_wait(s, event);
}
CU_PT(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags), stream, event,
      flags)

static CUresult do_cuLaunchHostFunc(int pt, CUstream stream, sim_host_fn fn, void *arg)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL || fn == NULL)
        return s == NULL ? CUDA_ECTX : CUDA_EINVAL;
    struct sim_entry e = {.type = SIM_E_HOST};
    e.u.host.fn = fn;
    e.u.host.arg = arg;
    return sim_push(s, &e, NULL);
}
CU_PT(cuLaunchHostFunc, _ptsz, (CUstream stream, sim_host_fn fn, void *arg), stream, fn, arg)

static CUresult do_cuStreamAddCallback(int pt, CUstream stream, sim_callback_fn fn, void *arg,
                                       unsigned flags)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL || fn == NULL || flags != 0)
        return s == NULL ? CUDA_ECTX : CUDA_EINVAL;
    struct sim_entry e = {.type = SIM_E_HOST};
    e.u.host.callback = fn;
    e.u.host.arg = arg;
    e.u.host.stream_handle = stream;
    return sim_push(s, &e, NULL);
}
CU_PT(cuStreamAddCallback, _ptsz, (CUstream stream, sim_callback_fn fn, void *arg, unsigned flags),
      stream, fn, arg, flags)

// Events are kept for ever in a pool: an entry in a queue may still point at a destroyed one.
static pthread_mutex_t g_event_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_event *g_free[4096];
static uint32_t g_free_count;

CU_FN(cuEventCreate)(CUevent *event, unsigned flags)
{
    SIM_COUNT(cuEventCreate);
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc != CUDA_OK)
        return rc;
    struct sim_event *e = NULL;
    pthread_mutex_lock(&g_event_lock);
    if (g_free_count > 2048)
        e = g_free[--g_free_count];
    pthread_mutex_unlock(&g_event_lock);
    if (e == NULL)
        e = calloc(1, sizeof(*e));
    if (e == NULL)
        return CUDA_ENOMEM;
    *e = (struct sim_event){.flags = flags, .live = 1};
    *event = e;
    return CUDA_OK;
}

CU_FN(cuEventDestroy_v2)(CUevent event)
{
    SIM_COUNT(cuEventDestroy_v2);
    struct sim_event *e = event;
    if (e == NULL || !e->live)
        return CUDA_EHANDLE;
    e->live = 0;
    pthread_mutex_lock(&g_event_lock);
    if (g_free_count < sizeof(g_free) / sizeof(g_free[0]))
        g_free[g_free_count++] = e;
    pthread_mutex_unlock(&g_event_lock);
    return CUDA_OK;
}

static CUresult do_cuEventRecord(int pt, CUevent event, CUstream stream)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL || event == NULL)
        return s == NULL ? CUDA_ECTX : CUDA_EHANDLE;
    return sim_event_record(event, s);
}
CU_PT(cuEventRecord, _ptsz, (CUevent event, CUstream stream), event, stream)

static CUresult do_cuEventRecordWithFlags(int pt, CUevent event, CUstream stream, unsigned flags)
{
    (void)flags;
    return do_cuEventRecord(pt, event, stream);
}
CU_PT(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags), event,
      stream, flags)

CU_FN(cuEventQuery)(CUevent event)
{
    SIM_COUNT(cuEventQuery);
    struct sim_event *e = event;
    if (e == NULL)
        return CUDA_EHANDLE;
    return e->stream == NULL || sim_stream_reached(e->stream, e->seq) ? CUDA_OK : CUDA_ENOTREADY;
}

CU_FN(cuEventSynchronize)(CUevent event)
{
    SIM_COUNT(cuEventSynchronize);
    struct sim_event *e = event;
    if (e == NULL)
        return CUDA_EHANDLE;
    return e->stream == NULL ? CUDA_OK : sim_stream_wait(e->stream, e->seq, (e->flags & 1) != 0);
}

CU_FN(cuEventElapsedTime)(float *ms, CUevent start, CUevent end)
{
    SIM_COUNT(cuEventElapsedTime);
    const struct sim_event *a = start, *b = end;
    if (a == NULL || b == NULL || a->stream == NULL || b->stream == NULL)
        return CUDA_EHANDLE;
    if (!sim_stream_reached(a->stream, a->seq) || !sim_stream_reached(b->stream, b->seq))
        return CUDA_ENOTREADY;
    *ms = (float)((double)(int64_t)(b->done_ns - a->done_ns) / 1e6);
    return CUDA_OK;
}
