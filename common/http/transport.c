/* SPDX-License-Identifier: Apache-2.0 */
#include "http/transport.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd_of(void *state)
{
    return (int)(intptr_t)state;
}

static ssize_t plain_read(void *state, uint8_t *dst, size_t n)
{
    for (;;) {
        ssize_t got = recv(fd_of(state), dst, n, 0);
        if (got >= 0) {
            return got;
        }
        if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
}

static ssize_t plain_write(void *state, const uint8_t *src, size_t n)
{
    for (;;) {
        ssize_t sent = send(fd_of(state), src, n, MSG_NOSIGNAL);
        if (sent >= 0) {
            return sent;
        }
        if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
}

static void plain_shutdown(void *state)
{
    (void)shutdown(fd_of(state), SHUT_WR);
}

static void plain_close(void *state)
{
    close(fd_of(state));
}

struct ltn_transport ltn_transport_plain(int fd)
{
    return (struct ltn_transport){
        .read = plain_read,
        .write = plain_write,
        .shutdown = plain_shutdown,
        .close = plain_close,
        .state = (void *)(intptr_t)fd,
    };
}
