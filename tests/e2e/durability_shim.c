/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded into a program under test (LD_PRELOAD): the wall clock stands where the test puts it, and
 * writes to files fail as the test says. The test writes both into the file named by LTN_SHIM_FILE.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    _Atomic int64_t offset_ns; /* added to the wall clock */
    _Atomic int64_t error;     /* errno of every write; 0: they work */
    _Atomic int64_t failed;    /* how many did not */
};

static struct control *control;
static char folder[4096]; /* files below it are meant */

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("LTN_SHIM_FILE");
    const char *below = getenv("LTN_SHIM_FOLDER");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || below == NULL || strlen(below) >= sizeof(folder))
        abort();
    memcpy(folder, below, strlen(below) + 1);
    void *p = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        abort();
    (void)close(fd);
    control = p;
}

/* ---- clock ---- */

int clock_gettime(clockid_t id, struct timespec *ts)
{
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        *(void **)&real = next("clock_gettime");
    int rc = real(id, ts);
    if (rc == 0 && control != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = ts->tv_sec * 1000000000LL + ts->tv_nsec + atomic_load(&control->offset_ns);
        ts->tv_sec = ns / 1000000000LL;
        ts->tv_nsec = ns % 1000000000LL;
    }
    return rc;
}

int gettimeofday(struct timeval *tv, void *zone)
{
    struct timespec ts;
    (void)zone;
    int rc = clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return rc;
}

time_t time(time_t *ret)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    if (ret != NULL)
        *ret = ts.tv_sec;
    return ts.tv_sec;
}

/* ---- disk ---- */

static int refuse(void)
{
    errno = (int)atomic_load(&control->error);
    atomic_fetch_add(&control->failed, 1);
    return -1;
}

static int failing(void)
{
    return control != NULL && atomic_load(&control->error) != 0;
}

/* Regular files, but for what the program says of itself. */
static int meant(int fd)
{
    struct stat st;
    int before = errno;
    int yes = failing() && fd > 2 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    errno = before;
    return yes;
}

static int meant_path(const char *path, int flags)
{
    return failing() && (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 &&
           strncmp(path, folder, strlen(folder)) == 0;
}

#define WRAP(ret, name, params, args, fd)                                                          \
    ret name params                                                                                \
    {                                                                                              \
        static ret(*real) params;                                                                  \
        if (meant(fd))                                                                             \
            return refuse();                                                                       \
        if (real == NULL)                                                                          \
            *(void **)&real = next(#name);                                                         \
        return real args;                                                                          \
    }

WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), fd)
WRAP(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), fd)
WRAP(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at), fd)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), fd)
WRAP(int, ftruncate64, (int fd, off64_t n), (fd, n), fd)
WRAP(int, fsync, (int fd), (fd), fd)
WRAP(int, fdatasync, (int fd), (fd), fd)

#define WRAP_OPEN(name)                                                                            \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        static int (*real)(const char *, int, ...);                                                \
        mode_t mode = 0;                                                                           \
        if ((flags & O_CREAT) != 0) {                                                              \
            va_list ap;                                                                            \
            va_start(ap, flags);                                                                   \
            mode = va_arg(ap, mode_t);                                                             \
            va_end(ap);                                                                            \
        }                                                                                          \
        if (meant_path(path, flags))                                                               \
            return refuse();                                                                       \
        if (real == NULL)                                                                          \
            *(void **)&real = next(#name);                                                         \
        return real(path, flags, mode);                                                            \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
