// SPDX-License-Identifier: Apache-2.0
// A C++ program that throws through its own frames around CUDA calls: capture_throw ROUNDS.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

extern "C" {
#include "sim_api.h"
}

static long g_destroyed;

struct Guard {
    ~Guard()
    {
        g_destroyed++;
    }
};

__attribute__((noinline)) static void launch(cudaStream_t stream, long i)
{
    Guard guard;
    std::uint64_t ns = 1000;
    void *args[] = {&ns};
    // Every third launch is refused; the error becomes an exception.
    const void *func = i % 3 == 2 ? nullptr : reinterpret_cast<const void *>(&simKernel);
    int rc = cudaLaunchKernel(func, dim3{1, 1, 1}, dim3{32, 1, 1}, args, 0, stream);
    if (rc != 0) {
        throw std::runtime_error("launch");
    }
}

__attribute__((noinline)) static void step(cudaStream_t stream, long i)
{
    Guard guard;
    launch(stream, i);
    if (cudaStreamSynchronize(stream) != 0 || i % 2 == 1) {
        throw static_cast<int>(i);
    }
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 10;
    long caught = 0;
    cudaStream_t stream = nullptr;
    if (cudaSetDevice(0) != 0 || cudaStreamCreateWithFlags(&stream, 1) != 0) {
        return 1;
    }
    for (long i = 0; i < rounds; i++) {
        try {
            step(stream, i);
        } catch (const std::runtime_error &) {
            caught++;
        } catch (int) {
            caught++;
        }
    }
    std::printf("caught %ld destroyed %ld\n", caught, g_destroyed);
    return 0;
}
