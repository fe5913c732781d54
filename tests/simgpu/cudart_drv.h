// SPDX-License-Identifier: Apache-2.0
// The driver functions that the runtime uses, resolved as the real one resolves them:
// dlopen("libcuda.so.1"), one dlsym of cuGetProcAddress_v2, then one query per function and stream
// flavour, in one burst at the first runtime call.
#ifndef SIM_CUDART_DRV_H
#define SIM_CUDART_DRV_H

#include <stddef.h>
#include <stdint.h>

typedef int cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t, *cudaGraph_t, *cudaGraphExec_t;

struct sim_dim3 {
    unsigned x, y, z;
};

#define SIM_DRV_LIST(X)                                                                            \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (int *, int))                                                                   \
    X(cuDeviceGetName, (char *, int, int))                                                         \
    X(cuDeviceGetUuid, (unsigned char *, int))                                                     \
    X(cuDeviceTotalMem, (size_t *, int))                                                           \
    X(cuDeviceGetAttribute, (int *, int, int))                                                     \
    X(cuDeviceGetPCIBusId, (char *, int, int))                                                     \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                    \
    X(cuDevicePrimaryCtxSetFlags, (int, unsigned))                                                 \
    X(cuDevicePrimaryCtxReset, (int))                                                              \
    X(cuCtxSetCurrent, (void *))                                                                   \
    X(cuCtxGetCurrent, (void **))                                                                  \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuMemAlloc, (uint64_t *, size_t))                                                            \
    X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                           \
    X(cuMemAllocPitch, (uint64_t *, size_t *, size_t, size_t, unsigned))                           \
    X(cuMemFree, (uint64_t))                                                                       \
    X(cuMemAllocAsync, (uint64_t *, size_t, void *))                                               \
    X(cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *))                               \
    X(cuMemFreeAsync, (uint64_t, void *))                                                          \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemHostRegister, (void *, size_t, unsigned))                                               \
    X(cuMemHostUnregister, (void *))                                                               \
    X(cuMemGetInfo, (size_t *, size_t *))                                                          \
    X(cuMemcpy, (uint64_t, uint64_t, size_t))                                                      \
    X(cuMemcpyHtoD, (uint64_t, uint64_t, size_t))                                                  \
    X(cuMemcpyDtoH, (uint64_t, uint64_t, size_t))                                                  \
    X(cuMemcpyDtoD, (uint64_t, uint64_t, size_t))                                                  \
    X(cuMemcpyAsync, (uint64_t, uint64_t, size_t, void *))                                         \
    X(cuMemcpyHtoDAsync, (uint64_t, uint64_t, size_t, void *))                                     \
    X(cuMemcpyDtoHAsync, (uint64_t, uint64_t, size_t, void *))                                     \
    X(cuMemcpyDtoDAsync, (uint64_t, uint64_t, size_t, void *))                                     \
    X(cuMemcpyPeer, (uint64_t, void *, uint64_t, void *, size_t))                                  \
    X(cuMemcpyPeerAsync, (uint64_t, void *, uint64_t, void *, size_t, void *))                     \
    X(cuMemcpy2DAsync, (const void *, void *))                                                     \
    X(cuMemcpy2DUnaligned, (const void *))                                                         \
    X(cuMemsetD8, (uint64_t, unsigned char, size_t))                                               \
    X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *))                                  \
    X(cuMemsetD2D8, (uint64_t, size_t, unsigned char, size_t, size_t))                             \
    X(cuMemsetD2D8Async, (uint64_t, size_t, unsigned char, size_t, size_t, void *))                \
    X(cuMemcpy3D, (const void *))                                                                  \
    X(cuMemcpy3DAsync, (const void *, void *))                                                     \
    X(cuMemcpy3DPeer, (const void *))                                                              \
    X(cuMemcpy3DPeerAsync, (const void *, void *))                                                 \
    X(cuMemcpyBatchAsync,                                                                          \
      (uint64_t *, uint64_t *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *))      \
    X(cuMemPrefetchAsync, (uint64_t, size_t, uint64_t, unsigned, void *))                          \
    X(cuArrayCreate, (void **, const void *))                                                      \
    X(cuArray3DCreate, (void **, const void *))                                                    \
    X(cuArrayDestroy, (void *))                                                                    \
    X(cuStreamCreate, (void **, unsigned))                                                         \
    X(cuStreamCreateWithPriority, (void **, unsigned, int))                                        \
    X(cuStreamDestroy, (void *))                                                                   \
    X(cuStreamSynchronize, (void *))                                                               \
    X(cuStreamQuery, (void *))                                                                     \
    X(cuStreamWaitEvent, (void *, void *, unsigned))                                               \
    X(cuStreamAddCallback, (void *, void *, void *, unsigned))                                     \
    X(cuLaunchHostFunc, (void *, void (*)(void *), void *))                                        \
    X(cuEventCreate, (void **, unsigned))                                                          \
    X(cuEventRecord, (void *, void *))                                                             \
    X(cuEventRecordWithFlags, (void *, void *, unsigned))                                          \
    X(cuEventQuery, (void *))                                                                      \
    X(cuEventSynchronize, (void *))                                                                \
    X(cuEventDestroy, (void *))                                                                    \
    X(cuEventElapsedTime, (float *, void *, void *))                                               \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                       unsigned, void *, void **, void **))                                        \
    X(cuLaunchKernelEx, (const void *, void *, void **, void **))                                  \
    X(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                                  unsigned, unsigned, void *, void **))                            \
    X(cuLibraryLoadData,                                                                           \
      (void **, const void *, void *, void **, unsigned, void *, void **, unsigned))               \
    X(cuLibraryGetKernel, (void **, void *, const char *))                                         \
    X(cuKernelGetFunction, (void **, void *))                                                      \
    X(cuLaunchCooperativeKernelMultiDevice, (void *, unsigned, unsigned))                          \
    X(cuStreamBeginCapture, (void *, int))                                                         \
    X(cuStreamBeginCaptureToGraph, (void *, void *, const void *, const void *, size_t, int))      \
    X(cuStreamEndCapture, (void *, void **))                                                       \
    X(cuStreamIsCapturing, (void *, int *))                                                        \
    X(cuGraphCreate, (void **, unsigned))                                                          \
    X(cuGraphInstantiateWithFlags, (void **, void *, uint64_t))                                    \
    X(cuGraphInstantiateWithParams, (void **, void *, void *))                                     \
    X(cuGraphLaunch, (void *, void *))                                                             \
    X(cuGraphUpload, (void *, void *))                                                             \
    X(cuGraphExecUpdate, (void *, void *, void *))                                                 \
    X(cuGraphExecDestroy, (void *))                                                                \
    X(cuGraphDestroy, (void *))

struct sim_drv {
#define X(name, params) int(*name) params;
    SIM_DRV_LIST(X)
#undef X
};

extern struct sim_drv sim_drv[2]; // [1] = per-thread default stream flavour

int sim_rt_driver(void); // the burst alone: 0, 35 without a driver
int sim_rt_ready(void);  // driver, cuInit and the thread's current context; 0 or an error
int sim_rt_done(int rc); // notes the thread's last error and returns it
void *sim_rt_function(const void *f); // driver handle of a host stub or kernel handle
int sim_rt_device(void);              // the thread's current device
int sim_rt_select(int device);

#endif
