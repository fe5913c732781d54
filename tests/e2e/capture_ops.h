// SPDX-License-Identifier: Apache-2.0
// How capture_ops calls a function and says what it asked for.
#ifndef CAPTURE_OPS_H
#define CAPTURE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { OPS_NO_DRIVER = 35, OPS_NOT_READY = 600, OPS_ANY = 1 };

// What the record of the call is to say.
struct ops_want {
    size_t bytes;
    int kind;
    uint64_t handle;
    int any_handle; // known only to the library
};

bool ops_find(const char *symbol, void *ret_fn); // false: the library does not have it
size_t ops_prime(void);                          // above 1000, never the same again
size_t ops_small_prime(void);
void ops_check(int rc, const char *what);
void ops_say(const char *symbol, int rc, struct ops_want want);

// Without a driver a real runtime refuses every call before it looks at an argument: then handles
// may be anything, so that their places are seen all the same. NULL otherwise.
void *ops_fake(unsigned n);
bool ops_refused(void); // every call is to be refused

void ops_runtime(int major);
void ops_driver(void);
void ops_nccl(void);

#define OPS_ADDR(p) ((uint64_t)(uintptr_t)(p))
#define WANT(...)   ((struct ops_want){__VA_ARGS__})

// Calls the function and says so: symbol, what is wanted, parameter list, arguments, each of the
// last three in parentheses.
#define DO(symbol, want, params, args)                                                             \
    do {                                                                                           \
        int(*fn_) params;                                                                          \
        if (ops_find((symbol), &fn_)) {                                                            \
            struct ops_want want_ = {OPS_PARTS want};                                              \
            int rc_ = fn_ args;                                                                    \
            ops_say((symbol), rc_, want_);                                                         \
        }                                                                                          \
    } while (0)
#define OPS_PARTS(...) __VA_ARGS__

// The same for both flavours of the default stream.
#define BOTH(symbol, tail, want, params, args)                                                     \
    do {                                                                                           \
        DO(symbol, want, params, args);                                                            \
        DO(symbol tail, want, params, args);                                                       \
    } while (0)
#define Z(symbol, want, params, args) BOTH(symbol, "_ptsz", want, params, args)
#define D(symbol, want, params, args) BOTH(symbol, "_ptds", want, params, args)

// A call that is no part of the test.
#define QUIETLY(symbol, params, args)                                                              \
    do {                                                                                           \
        int(*fn_) params = NULL;                                                                   \
        int rc_ = ops_find((symbol), &fn_) ? fn_ args : -1;                                        \
        ops_check(ops_refused() && rc_ != -1 ? 0 : rc_, (symbol));                                 \
    } while (0)

#endif
