/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer: each file named on the command line (or in a folder named
 * there), then seeded mutations of it. Without files the target sees mutations of nothing.
 * LTN_REPLAY_MUTATIONS overrides the number per file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX_BYTES   (1 << 20)
#define MUTATIONS_DEFAULT 3000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t rng_state = 1;
static unsigned long mutations = MUTATIONS_DEFAULT;
static unsigned long inputs;

static uint64_t below(uint64_t n)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % n;
}

/* The target sees a heap copy of just that size, so that reads beyond are found. */
static void run(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data, n);
    (void)LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    inputs++;
}

/* One small change; returns the new length. buf has room for size bytes. */
static size_t mutate(uint8_t *buf, size_t n, size_t size)
{
    static const uint8_t nasty[] = {0x00, 0x01, 0x0a, 0x12, 0x7f, 0x80, 0xfe, 0xff};
    size_t at = below(n + 1);
    size_t len = 1 + below(8);
    switch (below(6)) {
    case 0: /* another byte */
        if (at < n) {
            buf[at] = (uint8_t)below(256);
        }
        return n;
    case 1:
        if (at < n) {
            buf[at] = nasty[below(sizeof(nasty))];
        }
        return n;
    case 2: /* one bit */
        if (at < n) {
            buf[at] ^= (uint8_t)(1u << below(8));
        }
        return n;
    case 3: /* cut something out */
        if (at + len < n) {
            memmove(buf + at, buf + at + len, n - at - len);
            return n - len;
        }
        return at;
    case 4: /* put a copy of something in */
        if (n > len && n + len <= size) {
            size_t from = below(n - len);
            uint8_t piece[8];
            memcpy(piece, buf + from, len);
            memmove(buf + at + len, buf + at, n - at);
            memcpy(buf + at, piece, len);
            return n + len;
        }
        return n;
    default: /* put random bytes in */
        if (n + len <= size) {
            memmove(buf + at + len, buf + at, n - at);
            for (size_t i = 0; i < len; i++) {
                buf[at + i] = (uint8_t)below(256);
            }
            return n + len;
        }
        return n;
    }
}

static void run_with_mutations(const uint8_t *data, size_t n)
{
    size_t size = n + 256;
    uint8_t *buf = malloc(size);
    if (buf == NULL) {
        abort();
    }
    run(data, n);
    for (unsigned long i = 0; i < mutations; i++) {
        size_t len = n;
        memcpy(buf, data, n);
        for (uint64_t k = 1 + below(5); k > 0; k--) {
            len = mutate(buf, len, size);
        }
        run(buf, len);
    }
    free(buf);
}

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_MAX_BYTES);
    if (f == NULL || data == NULL) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        if (f != NULL) {
            (void)fclose(f);
        }
        return 1;
    }
    size_t n = fread(data, 1, INPUT_MAX_BYTES, f);
    (void)fclose(f);
    run_with_mutations(data, n);
    free(data);
    return 0;
}

static int run_path(const char *path)
{
    struct dirent **names;
    struct stat st;
    int failed = 0;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
        return run_file(path);
    }
    int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char file[4096];
        if (names[i]->d_name[0] != '.') {
            (void)snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
            failed |= run_file(file);
        }
        free(names[i]);
    }
    if (n >= 0) {
        free(names);
    }
    return n < 0 ? 1 : failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    const char *wanted = getenv("LTN_REPLAY_MUTATIONS");
    if (wanted != NULL) {
        mutations = strtoul(wanted, NULL, 10);
    }
    run_with_mutations((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        failed |= run_path(argv[i]);
    }
    (void)printf("%lu inputs\n", inputs);
    return failed;
}
