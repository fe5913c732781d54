/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-in for an old NVML: only the first forms of some calls, and a second device that is lost.
 */
#include <stdio.h>
#include <string.h>

struct device {
    int number;
};
static struct device devices[2] = {{0}, {1}};
static int ready;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *);
int nvmlDeviceGetHandleByIndex_v2(unsigned, struct device **);
int nvmlDeviceGetUUID(struct device *, char *, unsigned);
int nvmlDeviceGetMemoryInfo(struct device *, unsigned long long *);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *, unsigned long long *);
int nvmlDeviceGetComputeRunningProcesses(struct device *, unsigned *, void *);
int nvmlDeviceGetPowerUsage(struct device *, unsigned *);

int nvmlInit_v2(void)
{
    ready++;
    return NVML_INIT_RESULT;
}
int nvmlShutdown(void)
{
    ready--;
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return ready == 1 ? 0 : 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct device **d)
{
    *d = &devices[i < 2 ? i : 0];
    return i < 2 ? 0 : 2;
}
int nvmlDeviceGetUUID(struct device *d, char *out, unsigned size)
{
    memset(out, 'u', size); /* fills all of it, without a terminator */
    return d->number < 2 ? 0 : 2;
}
int nvmlDeviceGetMemoryInfo(struct device *d, unsigned long long *m)
{
    m[0] = 1000;
    m[1] = 300;
    m[2] = 700;
    return d->number == 0 ? 0 : 15;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, unsigned long long *bits)
{
    *bits = 0x8;
    return d->number == 0 ? 0 : 15;
}
/* Entries of 16 bytes; says that there are more than fit. */
int nvmlDeviceGetComputeRunningProcesses(struct device *d, unsigned *count, void *out)
{
    unsigned room = *count;
    if (d->number != 0) {
        *count = 0;
        return 3;
    }
    *count = 500;
    for (unsigned i = 0; i < room; i++) {
        unsigned pid = i == 0 ? 0 : 1000 + i;
        unsigned long long used = i == 1 ? ~0ull : i;
        memcpy((char *)out + i * 16, &pid, sizeof(pid));
        memcpy((char *)out + i * 16 + 8, &used, sizeof(used));
    }
    return 7;
}
int nvmlDeviceGetPowerUsage(struct device *d, unsigned *mw)
{
    *mw = 5;
    return d->number == 0 ? 3 : 0; /* not supported */
}
