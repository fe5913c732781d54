/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

static ssize_t read_some(int fd, void *p, size_t n)
{
    ssize_t got;
    do {
        got = read(fd, p, n);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

int ltn_file_read(const char *path, struct ltn_buf *b)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) {
        (void)close(fd);
        return LTN_ERR_UNSUPPORTED;
    }
    int rc = 0;
    for (;;) {
        char chunk[16384];
        ssize_t got = read_some(fd, chunk, sizeof(chunk));
        if (got <= 0) {
            rc = (int)got;
            break;
        }
        rc = ltn_buf_append(b, chunk, (size_t)got);
        if (rc < 0) {
            break;
        }
    }
    (void)close(fd);
    return rc;
}

long ltn_file_read_head(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    size_t len = 0;
    ssize_t got = 0;
    while (len < size - 1) {
        got = read_some(fd, out + len, size - 1 - len);
        if (got <= 0) {
            break;
        }
        len += (size_t)got;
    }
    (void)close(fd);
    if (got < 0) {
        return (long)got;
    }
    out[len] = '\0';
    return (long)len;
}

int ltn_fd_write_all(int fd, const void *p, size_t n)
{
    const char *at = p;
    while (n > 0) {
        ssize_t put = write(fd, at, n);
        if (put < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        at += put;
        n -= (size_t)put;
    }
    return 0;
}
