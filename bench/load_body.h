/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Export requests of the load generator: encoded once, with the places of times and values noted,
 * so that a request is sent by copying it and writing fixed-width fields over it. Compressed bodies
 * cannot be patched: each is made for one round and sent once.
 */
#ifndef LTN_BENCH_LOAD_BODY_H
#define LTN_BENCH_LOAD_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_FRAME_BYTES   16384 /* largest DATA frame */
#define LOAD_POINTS_A_NODE 240   /* series of one resource: 10 metrics of 24 points */

enum load_coding { LOAD_IDENTITY, LOAD_GZIP, LOAD_ZSTD };
enum load_shape { LOAD_SERIES, LOAD_AGENT };
/* LOAD_START is a window's length (10 s) before the time; not in JSON. */
enum load_field { LOAD_TIME, LOAD_INT, LOAD_DOUBLE, LOAD_START, LOAD_FIELDS };

struct load_patch {
    uint32_t at;
    enum load_field field;
};

struct load_body {
    uint8_t *data; /* with the five bytes of gRPC before it where that was asked for */
    size_t len;
    struct load_patch *patches;
    size_t patch_count;
    uint32_t points;
};

struct load_set_conf {
    enum load_shape shape;
    enum load_coding coding;
    bool json;
    bool grpc;
    uint32_t points; /* in a request; LOAD_AGENT has its own */
    uint32_t series;
    uint32_t rounds; /* compressed bodies only: how often each series has a new value */
};

struct load_set {
    struct load_body *bodies; /* round by round */
    size_t count;             /* all of them */
    size_t per_round;
    bool once; /* compressed: the set is used up when all were sent */
    bool json;
    uint64_t series;
    double plain_bytes; /* of a point, before compression, without gRPC's five bytes */
    double wire_bytes;  /* of a point, as sent, without frame headers */
};

/* Builds the set; ends the program with a message when it cannot. */
void load_set_init(struct load_set *s, const struct load_set_conf *conf);
void load_set_done(struct load_set *s);

/* End of the longest piece of the body that begins at from, has at most room bytes and goes through
 * no field; from when there is none. patch as below. */
size_t load_body_piece(const struct load_set *s, const struct load_body *b, size_t from,
                       size_t room, size_t patch);

/* Writes time and values of a round over the copy of [from, to) of the body at dst. *patch is where
 * the patches of that part begin and is moved behind them. */
void load_body_patch(const struct load_set *s, const struct load_body *b, uint8_t *dst, size_t from,
                     size_t to, size_t *patch, uint64_t time_ns, uint64_t round);

/* The whole number that the field of a point holds in a round; doubles are half more. */
uint64_t load_value(uint64_t round, size_t patch);

void load_fail(const char *what) __attribute__((noreturn));

#endif /* LTN_BENCH_LOAD_BODY_H */
