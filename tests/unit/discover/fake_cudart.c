/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-in for the CUDA runtime: real symbols at real addresses, nothing behind them. */
int cudaLaunchKernel(void);
int cudaMalloc(void);
int cudaFree(void);
int cudaLaunchKernel(void)
{
    return FLAVOUR;
}
int cudaMalloc(void)
{
    return 2;
}
int cudaFree(void)
{
    return 3;
}
/* One name in two versions, the older hidden. */
int fake_old(void);
int fake_new(void);
int fake_old(void)
{
    return 11;
}
int fake_new(void)
{
    return 12;
}
__asm__(".symver fake_old, cudaMemcpyAsync@OLD\n.symver fake_new, cudaMemcpyAsync@@NEW");
