/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The marks by which functions of a stripped runtime are told: a word asked for at four times the
 * callback number, then the number handed on. What only looks alike follows at the end.
 */
    .text

.macro FUNCTION word, argument, store
    .p2align 4
    .cfi_startproc
    push %rbp
    mov %rsp, %rbp
    mov 4 * \word(%rax), %edx
    test %edx, %edx
    je 1f
    mov $\argument, %edi
    movq $\store, -0x60(%rbp)
    call *8(%rax)
1:  pop %rbp
    ret
    .cfi_endproc
.endm

/* cudaMalloc and cudaFree, one with a short and one with a long distance, and 70 more. */
    .globl fixture_malloc
    .type fixture_malloc, @function
    .p2align 4
fixture_malloc:
    FUNCTION 20, 20, 20
    .globl fixture_launch
    .type fixture_launch, @function
    .p2align 4
fixture_launch:
    FUNCTION 211, 211, 211
    .set i, 600
    .rept 70
    FUNCTION i, i, i
    .set i, i + 1
    .endr

/* A register of the second eight, and a base among them: cudaStreamSynchronize. */
    .globl fixture_sync
    .type fixture_sync, @function
    .p2align 4
fixture_sync:
    .cfi_startproc
    push %rbp
    mov 4 * 131(%r9), %r10d
    test %r10d, %r10d
    je 1f
    mov $131, %edi
    movl $131, 0x40(%rsp)
    call *8(%rax)
1:  pop %rbp
    ret
    .cfi_endproc

/* Claimed by two: cudaFree. Numbers that do not agree: cudaMemcpy (31). */
    FUNCTION 22, 22, 22
    FUNCTION 22, 22, 22
    FUNCTION 31, 32, 31
    FUNCTION 31, 31, 33
    .section .note.GNU-stack, "", @progbits
