/* SPDX-License-Identifier: Apache-2.0 */
/* Replays files, and bytes from a fixed generator, through a fuzz target without libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUT  65536
#define RANDOM_RUN 2000

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int replay_file(const char *path)
{
    static uint8_t bytes[MAX_INPUT];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    size_t n = fread(bytes, 1, sizeof(bytes), f);
    (void)fclose(f);
    (void)LLVMFuzzerTestOneInput(bytes, n);
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t bytes[512];
    uint64_t x = 88172645463325252ULL;
    for (int i = 1; i < argc; i++) {
        if (replay_file(argv[i]) != 0) {
            return 1;
        }
    }
    for (int run = 0; run < RANDOM_RUN; run++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            /* Small values often: lengths, types and flags are small. */
            bytes[i] = (uint8_t)((x >> 40) & ((x & 3) == 0 ? 0xff : 0x0f));
        }
        (void)LLVMFuzzerTestOneInput(bytes, (size_t)run % sizeof(bytes));
    }
    return 0;
}
