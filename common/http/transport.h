/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a connection's bytes come from and go to. The plain one is a TCP socket; a TLS one has the
 * same four functions and keeps its state behind the pointer. Used inside the room.
 */
#ifndef LTN_HTTP_TRANSPORT_H
#define LTN_HTTP_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ltn_transport {
    /* Bytes moved; 0 from read: the peer has ended its side; -EAGAIN: wait for the descriptor;
     * other negative: -errno. Never block, never raise SIGPIPE. */
    ssize_t (*read)(void *state, uint8_t *dst, size_t n);
    ssize_t (*write)(void *state, const uint8_t *src, size_t n);
    /* Ends the sending side. */
    void (*shutdown)(void *state);
    /* Frees the state and closes the descriptor. */
    void (*close)(void *state);
    void *state;
};

/* A transport on a connected non-blocking socket; takes fd. */
struct ltn_transport ltn_transport_plain(int fd);

#endif /* LTN_HTTP_TRANSPORT_H */
