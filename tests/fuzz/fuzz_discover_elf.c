/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an ELF file, opened and searched as the agent does. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "discover/cudart_code.h"
#include "discover/elf.h"
#include "probe/site.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("elf", MFD_CLOEXEC);
    }
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size) {
        return 0;
    }
    struct ltn_elf *e;
    if (ltn_elf_open_fd(fd, &e) < 0) {
        return 0;
    }
    struct ltn_elf_sym syms[] = {{.name = "ncclAllReduce"},
                                 {.name = "pncclAllReduce"},
                                 {.name = "ncclCommInitRank"},
                                 {.name = "cudaMalloc"},
                                 {.name = "a"}};
    size_t count = sizeof(syms) / sizeof(syms[0]);
    unsigned found;
    if (ltn_cudart_find_code(e, syms, count, &found) == 0 && syms[3].found &&
        (syms[3].file_offset >= size || found < LTN_CUDART_FUNCTIONS_MIN)) {
        abort();
    }
    if (ltn_elf_lookup(e, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB, syms, count) == 0) {
        for (size_t i = 0; i < count; i++) {
            struct ltn_site s =
                ltn_site_pick(syms[i].code, syms[i].code_len, ltn_elf_info(e)->machine);
            if (syms[i].found && (syms[i].file_offset >= size || s.delta_bytes > 10)) {
                abort();
            }
        }
    }
    ltn_elf_free(e);
    return 0;
}
