/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Arguments of calls that are not made in every step, of many layouts: rectangles, boxes, structs
 * behind pointers, structs by value. Out of line, so that the launch path stays as short as it is.
 */
#ifndef LTN_BPF_LAYOUTS_H
#define LTN_BPF_LAYOUTS_H

#include "bpf/arguments.h"

#define OVERFLOW   (~0ULL)
#define KIND_WRONG 255U /* no direction that there is */

/* CUmemorytype */
#define MEMORY_HOST    1
#define MEMORY_UNIFIED 4

#define BATCH_WORDS 16
#define BATCH_READS 8

/* a * b, or OVERFLOW for what is far above all that is possible. In halves: the plain way to ask
 * for an overflow becomes a multiplication of 128 bits, which the machine does not have. */
static __always_inline ltn_u64 times(ltn_u64 a, ltn_u64 b)
{
    ltn_u64 big = a > b ? a : b;
    ltn_u64 small = a > b ? b : a;
    if (small >> 32) {
        return OVERFLOW;
    }
    ltn_u64 high = (big >> 32) * small;
    ltn_u64 low = (big & 0xffffffff) * small;
    return (high >> 16) || (low >> 48) ? OVERFLOW : (high << 32) + low;
}

/* Fills t->scratch from user memory; 0, and counted, when that cannot be read. */
static __always_inline int read_words(struct ltn_task *t, ltn_u64 at, ltn_u32 bytes)
{
    if (bpf_probe_read_user(t->scratch, bytes, (const void *)at) != 0) {
        count_drop(LTN_DROP_ARGUMENT);
        return 0;
    }
    return 1;
}

/* Bytes of the box whose sides stand at the address. */
static __always_inline ltn_u64 read_box(struct ltn_task *t, ltn_u64 at)
{
    return read_words(t, at, 24) ? times(times(t->scratch[0], t->scratch[1]), t->scratch[2]) : 0;
}

/* Where a struct passed by value begins that stands so many words above the first argument on the
 * stack; where structs of its size go by pointer, what argument i points at. */
static __always_inline ltn_u64 by_value(struct ltn_task *t, ltn_u64 sp, ltn_u32 words, ltn_u32 i)
{
#if defined(__TARGET_ARCH_x86)
    return sp + STACK_SKIP + 8ULL * words;
#else
    return t->args[i & 7];
#endif
}

/* cudaMemcpyKind by the types of the memory that the driver is told. */
static __always_inline ltn_u32 direction_of(ltn_u32 from, ltn_u32 to)
{
    if (from - 1 > 3 || to - 1 > 3) {
        return KIND_WRONG;
    }
    if (from == MEMORY_UNIFIED || to == MEMORY_UNIFIED) {
        return 4;
    }
    if (from == MEMORY_HOST) {
        return to == MEMORY_HOST ? 0 : 1;
    }
    return to == MEMORY_HOST ? 2 : 3;
}

/* Types of memory at two places of a struct; the types are 32 bits. */
static __always_inline ltn_u32 read_direction(struct ltn_task *t, ltn_u64 from, ltn_u64 to)
{
    if (!read_words(t, from, 4)) {
        return 4;
    }
    ltn_u32 source = (ltn_u32)t->scratch[0];
    return read_words(t, to, 4) ? direction_of(source, (ltn_u32)t->scratch[0]) : 4;
}

static __always_inline void decode_driver_copy(struct ltn_task *t, struct ltn_frame *f, ltn_u64 at)
{
    if (LTN_COOKIE_DECODER(f->cookie) == LTN_DECODE_CU_COPY_2D) {
        f->bytes = read_words(t, at + 112, 16) ? times(t->scratch[0], t->scratch[1]) : 0;
        f->kind = read_direction(t, at + 16, at + 72);
    } else {
        f->bytes = read_box(t, at + 176);
        f->kind = read_direction(t, at + 32, at + 120);
    }
}

/* The first so many of the sizes; whether all were read is counted. */
static __always_inline void decode_batch(struct ltn_task *t, struct ltn_frame *f, ltn_u64 at,
                                         ltn_u64 count)
{
    for (int i = 0; i < BATCH_READS; i++) {
        ltn_u64 left = count - (ltn_u64)i * BATCH_WORDS;
        if (count <= (ltn_u64)i * BATCH_WORDS) {
            return;
        }
        ltn_u32 n = left < BATCH_WORDS ? (ltn_u32)left : BATCH_WORDS;
        __builtin_memset(t->scratch, 0, sizeof(t->scratch));
        if (!read_words(t, at + 8ULL * BATCH_WORDS * (ltn_u64)i, (n & 31) * 8)) {
            return;
        }
        for (ltn_u32 k = 0; k < BATCH_WORDS; k++) {
            f->bytes += t->scratch[k]; /* 0 beyond n: no branch, which the verifier would follow */
        }
    }
    if (count > BATCH_WORDS * BATCH_READS) {
        count_drop(LTN_DROP_ARGUMENT);
    }
}

static __always_inline ltn_u64 at_least_one(ltn_u64 n)
{
    return n == 0 ? 1 : n;
}

/* Bytes of an element that a cudaChannelFormatDesc tells: four numbers of bits. */
static __always_inline ltn_u64 read_element(struct ltn_task *t, ltn_u64 at)
{
    if (!read_words(t, at, 16)) {
        return 0;
    }
    ltn_u64 bits = (t->scratch[0] & 0xffffffff) + (t->scratch[0] >> 32) +
                   (t->scratch[1] & 0xffffffff) + (t->scratch[1] >> 32);
    return at_least_one(bits / 8);
}

/* Bytes of one number of a CUarray_format; the packed ones count one for each element. */
static __always_inline ltn_u64 format_bytes(ltn_u32 format)
{
    if (format == 0x03 || format == 0x0a || format == 0x20) {
        return 4;
    }
    return format == 0x02 || format == 0x09 || format == 0x10 ? 2 : 1;
}

static __always_inline void decode_array(struct ltn_task *t, struct ltn_frame *f, ltn_u32 decoder)
{
    if (decoder == LTN_DECODE_CU_ARRAY && read_words(t, t->args[1], 24)) {
        ltn_u64 format = t->scratch[2];
        f->bytes = times(times(t->scratch[0], at_least_one(t->scratch[1])),
                         format_bytes((ltn_u32)format) * at_least_one(format >> 32));
    } else if (decoder == LTN_DECODE_CU_ARRAY_3D && read_words(t, t->args[1], 32)) {
        ltn_u64 format = t->scratch[3];
        f->bytes = times(
            times(times(t->scratch[0], at_least_one(t->scratch[1])), at_least_one(t->scratch[2])),
            format_bytes((ltn_u32)format) * at_least_one(format >> 32));
    } else if (decoder == LTN_DECODE_ARRAY) {
        f->bytes = times(times(t->args[2], at_least_one(t->args[3])), read_element(t, t->args[1]));
    } else if (decoder == LTN_DECODE_ARRAY_3D && read_words(t, by_value(t, f->sp, 0, 2), 24)) {
        ltn_u64 sides =
            times(times(t->scratch[0], at_least_one(t->scratch[1])), at_least_one(t->scratch[2]));
        f->bytes = times(sides, read_element(t, t->args[1]));
    }
}

static __noinline int decode_layout(struct ltn_task *t, struct ltn_frame *f)
{
    ltn_u32 decoder = LTN_COOKIE_DECODER(f->cookie);
    ltn_u32 a = LTN_COOKIE_A(f->cookie);
    ltn_u64 first = argument(t, f->sp, a);
    f->handle = argument(t, f->sp, LTN_COOKIE_B(f->cookie));
    switch (decoder) {
    case LTN_DECODE_RECT:
        f->bytes = times(first, argument(t, f->sp, a + 1)) << LTN_COOKIE_SHIFT(f->cookie);
        break;
    case LTN_DECODE_COPY_RECT:
        f->bytes = times(first, argument(t, f->sp, a + 1));
        f->kind = (ltn_u32)argument(t, f->sp, a + 2);
        break;
    case LTN_DECODE_COPY_SYMBOL:
        f->bytes = first;
        f->kind = (ltn_u32)argument(t, f->sp, a + 2);
        break;
    case LTN_DECODE_COPY_3D:
        f->bytes = read_box(t, first + 128);
        f->kind = read_words(t, first + 152, 4) ? (ltn_u32)t->scratch[0] : 4;
        break;
    case LTN_DECODE_COPY_3D_PEER:
        f->bytes = read_box(t, first + 144);
        break;
    case LTN_DECODE_CU_COPY_2D:
    case LTN_DECODE_CU_COPY_3D:
        decode_driver_copy(t, f, first);
        break;
    case LTN_DECODE_BATCH:
        decode_batch(t, f, first, argument(t, f->sp, a + 1));
        break;
    case LTN_DECODE_EXTENT:
        f->bytes = read_box(t, by_value(t, f->sp, 0, 1));
        break;
    case LTN_DECODE_SET_3D:
        f->bytes = read_box(t, by_value(t, f->sp, 4, 2));
#if defined(__TARGET_ARCH_x86)
        /* Structs on the stack take no register, so the stream is the second register argument. */
        f->handle = LTN_COOKIE_B(f->cookie) != LTN_ARG_NONE ? t->args[1] : 0;
#endif
        break;
    default:
        f->handle = 0;
        decode_array(t, f, decoder);
        break;
    }
    return 0;
}

#endif /* LTN_BPF_LAYOUTS_H */
