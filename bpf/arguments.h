/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Arguments of a traced call at entry, by index: registers first, then the caller's stack (SysV
 * x86-64, AAPCS64). */
#ifndef LTN_BPF_ARGUMENTS_H
#define LTN_BPF_ARGUMENTS_H

#include "bpf/maps.h"

#if defined(__TARGET_ARCH_x86)
#define REGISTER_ARGS 6
#define STACK_SKIP    8 /* the return address */
#define RETURN_POPS   8 /* a return takes it off the stack */
#else
#define REGISTER_ARGS 8
#define STACK_SKIP    0
#define RETURN_POPS   0
#endif

static __always_inline void load_register_args(struct pt_regs *ctx, struct ltn_task *t)
{
    t->args[0] = PT_REGS_PARM1(ctx);
    t->args[1] = PT_REGS_PARM2(ctx);
    t->args[2] = PT_REGS_PARM3(ctx);
    t->args[3] = PT_REGS_PARM4(ctx);
    t->args[4] = PT_REGS_PARM5(ctx);
#if defined(__TARGET_ARCH_x86)
    t->args[5] = ctx->r9;
#else
    const struct user_pt_regs *regs = (const struct user_pt_regs *)ctx;
    t->args[5] = regs->regs[5];
    t->args[6] = regs->regs[6];
    t->args[7] = regs->regs[7];
#endif
}

/* Argument by index; 0 for LTN_ARG_NONE and where user memory cannot be read, which is counted. */
static __always_inline ltn_u64 argument(struct ltn_task *t, ltn_u64 sp, ltn_u32 index)
{
    if (index < REGISTER_ARGS) {
        return t->args[index & 7];
    }
    if (index == LTN_ARG_NONE) {
        return 0;
    }
    ltn_u64 value = 0;
    ltn_u64 at = sp + STACK_SKIP + 8ULL * (index - REGISTER_ARGS);
    if (bpf_probe_read_user(&value, sizeof(value), (const void *)at) != 0) {
        count_drop(LTN_DROP_ARGUMENT);
        return 0;
    }
    return value;
}

#endif /* LTN_BPF_ARGUMENTS_H */
