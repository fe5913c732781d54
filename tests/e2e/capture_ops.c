// SPDX-License-Identifier: Apache-2.0
// Calls every traced function of one library with arguments that are known: sizes are primes, each
// used once. Says of each call what was asked for, one JSON object a line; at the end the
// libraries' own tallies.
//
//     capture_ops cudart|cuda|nccl FILE OUT TALLY
//     capture_ops refused FILE OUT TALLY       a real runtime on a machine without a driver
#include "capture_ops.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *g_lib;
static FILE *g_out;
static int g_failed;
static bool g_refused;

void *ops_fake(unsigned n)
{
    return g_refused ? (void *)(uintptr_t)(0x10000 + 64 * n) : NULL;
}

bool ops_refused(void)
{
    return g_refused;
}

bool ops_find(const char *symbol, void *ret_fn)
{
    void *at = dlsym(g_lib, symbol);
    if (at != NULL) {
        memcpy(ret_fn, &at, sizeof(at));
    }
    return at != NULL;
}

static bool is_prime(size_t n)
{
    for (size_t d = 2; d * d <= n; d++) {
        if (n % d == 0) {
            return false;
        }
    }
    return true;
}

size_t ops_prime(void)
{
    static size_t last = 1000;
    do {
        last++;
    } while (!is_prime(last));
    return last;
}

size_t ops_small_prime(void)
{
    static const size_t primes[] = {3, 5, 7, 11, 13, 17, 19};
    static unsigned next;
    return primes[next++ % (sizeof(primes) / sizeof(primes[0]))];
}

void ops_check(int rc, const char *what)
{
    if (rc != 0) {
        g_failed++;
        fprintf(stderr, "capture_ops: %s: %d\n", what, rc);
    }
}

void ops_say(const char *symbol, int rc, struct ops_want want)
{
    if (g_refused ? rc != OPS_NO_DRIVER : rc != 0 && rc != OPS_NOT_READY) {
        ops_check(rc == 0 ? -1 : rc, symbol);
    }
    fprintf(g_out,
            "{\"symbol\":\"%s\",\"rc\":%d,\"bytes\":%zu,\"kind\":%d,\"handle\":%lld,\"any\":%d}\n",
            symbol, rc, want.bytes, want.kind, (long long)want.handle, want.any_handle);
}

typedef const char *(*tally_fn)(unsigned, uint64_t *);

static void tally(FILE *out, void *lib, const char *reader, const char **comma)
{
    void *symbol = lib != NULL ? dlsym(lib, reader) : NULL;
    tally_fn fn;
    uint64_t value = 0;
    const char *name;
    if (symbol == NULL) {
        return;
    }
    memcpy(&fn, &symbol, sizeof(fn));
    for (unsigned i = 0; (name = fn(i, &value)) != NULL; i++) {
        if (value != 0) {
            fprintf(out, "%s\n\"%s\": %llu", *comma, name, (unsigned long long)value);
            *comma = ",";
        }
    }
}

static void write_tally(const char *path, bool of_runtime)
{
    const char *comma = "";
    FILE *out = fopen(path, "we");
    fprintf(out, "{");
    if (of_runtime) {
        tally(out, g_lib, "simTallyCudart", &comma);
    } else {
        tally(out, dlopen("libcudart.so.12", RTLD_NOW | RTLD_NOLOAD), "simTallyCudart", &comma);
    }
    tally(out, dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "simTallyCuda", &comma);
    tally(out, dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "simTallyNccl", &comma);
    fprintf(out, "\n}\n");
    ops_check(fclose(out), "fclose");
}

// Does the runtime find no driver?
static bool has_no_driver(void)
{
    int (*count)(int *) = NULL;
    int n = 0;
    return ops_find("cudaGetDeviceCount", &count) && count(&n) == OPS_NO_DRIVER;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: capture_ops cudart|cuda|nccl|refused FILE OUT TALLY\n", stderr);
        return 2;
    }
    bool refused = strcmp(argv[1], "refused") == 0;
    bool runtime = refused || strcmp(argv[1], "cudart") == 0;
    g_lib = dlopen(argv[2], RTLD_NOW);
    g_out = fopen(argv[3], "we");
    if (g_lib == NULL || g_out == NULL) {
        fprintf(stderr, "capture_ops: %s\n", g_lib == NULL ? dlerror() : argv[3]);
        return 2;
    }
    g_refused = refused && has_no_driver();
    if (refused && !g_refused) {
        fputs("capture_ops: there is a driver\n", stderr);
        return 77;
    }
    if (runtime) {
        const char *major = strstr(argv[2], ".so.");
        ops_runtime(major != NULL ? (int)strtol(major + 4, NULL, 10) : 0);
    } else if (strcmp(argv[1], "cuda") == 0) {
        ops_driver();
    } else {
        ops_nccl();
    }
    ops_check(fclose(g_out), "fclose");
    write_tally(argv[4], runtime);
    return g_failed != 0;
}
