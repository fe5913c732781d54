// SPDX-License-Identifier: Apache-2.0
// How a runtime export is written: counted, made ready, then the driver's function.
#ifndef SIM_CUDART_EXPORT_H
#define SIM_CUDART_EXPORT_H

#include "cudart_drv.h"
#include "sim_launch.h"

#ifndef RT_API
#define RT_API __attribute__((visibility("default")))
#endif

// A plain export: ready check, then one driver call.
#define RT_FN(name, params, call)                                                                  \
    RT_API cudaError_t name params                                                                 \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : sim_drv[0].call);                                        \
    }
// An export and its per-thread-default-stream variant.
#define RT_PT(name, suffix, params, call)                                                          \
    RT_FN(name, params, call)                                                                      \
    RT_API cudaError_t name##suffix params                                                         \
    {                                                                                              \
        SIM_COUNT(name##suffix);                                                                   \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : sim_drv[1].call);                                        \
    }
// As RT_PT, but through a helper that takes the flavour first.
#define RT_PT_DO(name, suffix, params, ...)                                                        \
    RT_API cudaError_t name params                                                                 \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : do_##name(0, __VA_ARGS__));                              \
    }                                                                                              \
    RT_API cudaError_t name##suffix params                                                         \
    {                                                                                              \
        SIM_COUNT(name##suffix);                                                                   \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : do_##name(1, __VA_ARGS__));                              \
    }

#define ADDR(p) ((uint64_t)(uintptr_t)(p))

#endif
