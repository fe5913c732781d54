/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions to put probes on, one for each case of the benchmark, so that all cases can be attached
 * at once. Each returns 0. The names say how they begin:
 *   bench_push_N     push, as in libcudart
 *   bench_landing_N  endbr64, then push
 *   bench_thunk_N    10-byte compare, then a jump, as the exports of libcuda
 *   bench_outer_N    push, and calls bench_inner_N: the runtime above the driver
 */
#if defined(__x86_64__)

.macro begin name
    .globl \name
    .type \name, @function
    .p2align 6
\name:
.endm

.macro end name
    .size \name, . - \name
.endm

.macro push_body
    push %rbp
    mov %rsp, %rbp
    xor %eax, %eax
    pop %rbp
    ret
.endm

    .data
    .p2align 2
ready:
    .long 1

    .text
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26
    begin bench_push_\n
    push_body
    end bench_push_\n

    begin bench_landing_\n
    endbr64
    push_body
    end bench_landing_\n

    begin bench_thunk_\n
    cmpl $0x12345678, ready(%rip)
    je 1f
    push_body
1:  ud2
    end bench_thunk_\n

    begin bench_inner_\n
    push_body
    end bench_inner_\n

    begin bench_outer_\n
    push %rbp
    mov %rsp, %rbp
    call .Linner_\n
    pop %rbp
    ret
    end bench_outer_\n
    .set .Linner_\n, bench_inner_\n
.endr

#elif defined(__aarch64__)

.macro begin name
    .globl \name
    .type \name, %function
    .p2align 6
\name:
.endm

.macro end name
    .size \name, . - \name
.endm

    .text
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26
    begin bench_push_\n
    stp x29, x30, [sp, #-16]!
    mov w0, #0
    ldp x29, x30, [sp], #16
    ret
    end bench_push_\n

    begin bench_landing_\n
    hint #34
    stp x29, x30, [sp, #-16]!
    mov w0, #0
    ldp x29, x30, [sp], #16
    ret
    end bench_landing_\n

    begin bench_thunk_\n
    b 1f
1:  mov w0, #0
    ret
    end bench_thunk_\n

    begin bench_inner_\n
    stp x29, x30, [sp, #-16]!
    mov w0, #0
    ldp x29, x30, [sp], #16
    ret
    end bench_inner_\n

    begin bench_outer_\n
    stp x29, x30, [sp, #-16]!
    bl .Linner_\n
    ldp x29, x30, [sp], #16
    ret
    end bench_outer_\n
    .set .Linner_\n, bench_inner_\n
.endr

#endif

    .section .note.GNU-stack, "", %progbits
