// SPDX-License-Identifier: Apache-2.0
// How a traced program and its test wait for each other: by files in a folder of theirs.
#ifndef CAPTURE_FLAGS_H
#define CAPTURE_FLAGS_H

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static inline void flag_name(char out[512], const char *dir, const char *name)
{
    snprintf(out, 512, "%s/%s", dir, name);
}

// Waits a minute at most; 0 when the file is there.
static inline int flag_wait(const char *dir, const char *name)
{
    char path[512];
    const struct timespec nap = {.tv_nsec = 1000000};
    flag_name(path, dir, name);
    for (int i = 0; i < 60000; i++) {
        if (access(path, F_OK) == 0) {
            return 0;
        }
        nanosleep(&nap, NULL);
    }
    return -1;
}

static inline void flag_make(const char *dir, const char *name)
{
    char path[512];
    flag_name(path, dir, name);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

#endif
