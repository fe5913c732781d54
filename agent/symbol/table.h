/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of one ELF file by place, for naming addresses. Names stay in the file; 16 bytes a
 * function are held, and the names of places that were asked for. Between questions the table is at
 * rest: the file is closed, since one that is open keeps its file system from being unmounted. The
 * file is hostile. One thread at a time.
 */
#ifndef LTN_SYMBOL_TABLE_H
#define LTN_SYMBOL_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "discover/elf.h"

struct ltn_symtab;

/* Reads the functions of an open file: of .symtab, else of .dynsym. Takes over the descriptor, also
 * on failure. 0, or the errors of ltn_elf_open_fd, LTN_ERR_COUNT when there are more functions than
 * are held. A file without functions is no error. Free with ltn_symtab_free. */
int ltn_symtab_open(int fd, struct ltn_symtab **ret) ltn_must_check;
void ltn_symtab_free(struct ltn_symtab *t);

/* Name of the function that holds the place in the file, demangled, not cleaned, cut to size. 0,
 * LTN_ERR_NOT_FOUND, -EBADF when the table is at rest and was not asked for this place before, or
 * an error of reading the file. */
int ltn_symtab_name(struct ltn_symtab *t, uint64_t file_offset, char *out,
                    size_t size) ltn_must_check;

/* Closes the file. */
void ltn_symtab_rest(struct ltn_symtab *t);

/* Opens it again, by a descriptor of the same file, which is taken over, also on failure and when
 * the table is not at rest. 0, or the errors of ltn_elf_open_fd. */
int ltn_symtab_wake(struct ltn_symtab *t, int fd) ltn_must_check;

/* Owned by t; NULL at rest. */
const struct ltn_elf_info *ltn_symtab_info(const struct ltn_symtab *t);

/* Bytes of memory held. */
size_t ltn_symtab_bytes(const struct ltn_symtab *t);

#endif /* LTN_SYMBOL_TABLE_H */
