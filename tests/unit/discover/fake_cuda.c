/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-in for the driver's user side, with the prologues of the real ones. */
int cuInit(void);
int cuInit(void)
{
    return 0;
}
#ifdef __x86_64__
__asm__(".text\n"
        ".globl cuLaunchKernel\n.type cuLaunchKernel,@function\n"
        "cuLaunchKernel: cmpl $0x12345678, fake_state(%rip)\n je 1f\n nop\n1: ret\n"
        ".size cuLaunchKernel, .-cuLaunchKernel\n"
        ".globl cuMemAlloc_v2\n.type cuMemAlloc_v2,@function\n"
        "cuMemAlloc_v2: push %rbp\n mov %rsp,%rbp\n pop %rbp\n ret\n"
        ".size cuMemAlloc_v2, .-cuMemAlloc_v2\n"
        ".globl cuCtxSynchronize\n.type cuCtxSynchronize,@function\n"
        "cuCtxSynchronize: endbr64\n push %rbp\n pop %rbp\n ret\n"
        ".size cuCtxSynchronize, .-cuCtxSynchronize\n"
        ".data\nfake_state: .long 0\n.text\n");
#endif
