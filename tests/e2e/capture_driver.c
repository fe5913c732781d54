// SPDX-License-Identifier: Apache-2.0
// Programs with one way of use each.
//   capture_driver driver DIR LAUNCHES   opens the driver only; makes DIR/opened, waits for
//   DIR/call,
//                                        launches kernels and waits for them
//   capture_driver burn LIB SECONDS      calls a function of the runtime that is of no interest to
//   a
//                                        tracer, without a pause
//   capture_driver map FILE SECONDS      maps the file as code and sleeps
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *symbol(void *lib, const char *name)
{
    void *at = lib == NULL ? NULL : dlsym(lib, name);
    if (at == NULL) {
        fprintf(stderr, "capture_driver: no %s\n", name);
        exit(1);
    }
    return at;
}
#define LOAD(pointer, lib, name)                                                                   \
    do {                                                                                           \
        void *at_ = symbol(lib, name);                                                             \
        memcpy(&(pointer), &at_, sizeof(at_));                                                     \
    } while (0)

static void wait_for(const char *path)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int i = 0; i < 60000 && access(path, F_OK) != 0; i++) {
        nanosleep(&nap, NULL);
    }
}

static int driver(const char *dir, long launches)
{
    int (*init)(unsigned);
    int (*create)(void **, unsigned, int);
    int (*load)(void **, const void *);
    int (*find)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*sync)(void *);
    char path[512];
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    void *context;
    void *module;
    void *function;
    LOAD(init, lib, "cuInit");
    LOAD(create, lib, "cuCtxCreate_v2");
    LOAD(load, lib, "cuModuleLoadData");
    LOAD(find, lib, "cuModuleGetFunction");
    LOAD(launch, lib, "cuLaunchKernel");
    LOAD(sync, lib, "cuStreamSynchronize");
    snprintf(path, sizeof(path), "%s/opened", dir);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    snprintf(path, sizeof(path), "%s/call", dir);
    wait_for(path);
    int rc = init(0);
    rc |= create(&context, 0, 0);
    rc |= load(&module, "");
    rc |= find(&function, module, "simKernelDriver");
    for (; launches > 0; launches--) {
        uint64_t ns = 1000;
        void *args[] = {&ns};
        rc |= launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL);
    }
    return rc | sync(NULL);
}

static int burn(const char *file, double seconds)
{
    const char *(*text)(int);
    void *lib = dlopen(file, RTLD_NOW);
    LOAD(text, lib, "cudaGetErrorString");
    const double end = now_s() + seconds;
    unsigned long sum = 0;
    while (now_s() < end) {
        for (int i = 0; i < 100000; i++) {
            sum += text(i & 7)[0];
        }
    }
    return sum == 0;
}

static int map(const char *file, double seconds)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
        perror(file);
        return 1;
    }
    const struct timespec nap = {.tv_sec = (time_t)seconds};
    nanosleep(&nap, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return 2;
    }
    if (strcmp(argv[1], "driver") == 0) {
        return driver(argv[2], strtol(argv[3], NULL, 10));
    }
    return strcmp(argv[1], "burn") == 0 ? burn(argv[2], strtod(argv[3], NULL))
                                        : map(argv[2], strtod(argv[3], NULL));
}
