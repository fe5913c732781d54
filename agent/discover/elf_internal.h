/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that read ELF share. */
#ifndef LTN_DISCOVER_ELF_INTERNAL_H
#define LTN_DISCOVER_ELF_INTERNAL_H

#include <elf.h>

#include "discover/elf.h"

struct table {
    uint64_t sym_off;
    uint64_t sym_count;
    uint64_t str_off;
    uint64_t str_size;
    uint64_t ver_off; /* .gnu.version, 0 = none */
    uint64_t ver_count;
};

struct ltn_elf {
    int fd;
    bool owns_fd;
    uint64_t file_size;
    size_t phdr_count;
    Elf64_Phdr *phdrs;
    struct table dynsym;
    struct table symtab;
    struct ltn_elf_info info;
};

/* All n bytes at off, or an error; a short file is malformed. */
int ltn_elf_read_at(const struct ltn_elf *e, uint64_t off, void *out, size_t n) ltn_must_check;

/* File offset of a virtual address, and how many bytes follow it in its segment; only inside what
 * the file really holds. */
bool ltn_elf_offset_of(const struct ltn_elf *e, uint64_t addr, bool exec_only, uint64_t *ret_off,
                       uint64_t *ret_room) ltn_must_check;

#endif /* LTN_DISCOVER_ELF_INTERNAL_H */
