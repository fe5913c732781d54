// SPDX-License-Identifier: Apache-2.0
// The function that test programs call where their frames are to be looked at.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

__attribute__((noinline)) int python_tick(uint64_t serial)
{
    __asm__ volatile("" ::: "memory");
    return (int)(serial & 1);
}

/* A call that stands still for a while, for walks from outside. */
__attribute__((noinline)) int python_nap(uint64_t serial, unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
    return python_tick(serial);
}

typedef void (*callback)(void);

static void *run(void *arg)
{
    callback *fn = arg;
    (*fn)();
    (void)python_tick(UINT64_MAX); /* this thread has left Python */
    return NULL;
}

/* Calls back from a thread that Python knows nothing of. */
int python_foreign(callback fn)
{
    pthread_t t;
    if (pthread_create(&t, NULL, run, &fn) != 0) {
        return -1;
    }
    return pthread_join(t, NULL);
}

/* Makes keys before the interpreter makes its own, when the program is told to and this library is
 * loaded first. */
__attribute__((constructor)) static void take_keys(void)
{
    const char *count = getenv("PYTHON_TICK_KEYS");
    for (long i = count != NULL ? strtol(count, NULL, 10) : 0; i > 0; i--) {
        pthread_key_t key;
        (void)pthread_key_create(&key, NULL);
    }
}
