// SPDX-License-Identifier: Apache-2.0
// A traced C++ program: names that must come out readable.
extern "C" {
#include "sim_api.h"
}

namespace app
{
static volatile int done;

template <typename T> struct Loader {
    __attribute__((noinline)) void fetch(const T *, unsigned bytes)
    {
        void *p = nullptr;
        done = done + cudaMalloc(&p, bytes);
    }
};

__attribute__((noinline)) void epoch(int n)
{
    Loader<double> loader;
    double x = n;
    loader.fetch(&x, 64);
    done = done + 1;
}
} // namespace app

int main()
{
    for (int i = 0; i < 5; i++) {
        app::epoch(i);
    }
    return 0;
}
