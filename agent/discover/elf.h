/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of an ELF file by name, as file offsets ready for uprobes: many names in one pass. The
 * file is hostile: it is read with pread (never mapped, so that cutting it short is harmless), with
 * ceilings on counts and sizes. 64-bit little-endian files of x86-64 and arm64. One thread at a
 * time per object.
 */
#ifndef LTN_DISCOVER_ELF_H
#define LTN_DISCOVER_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define LTN_ELF_BUILD_ID_BYTES 32
#define LTN_ELF_SONAME_BYTES   64
#define LTN_ELF_CODE_BYTES     16

struct ltn_elf_info {
    uint16_t machine; /* EM_X86_64 (62) or EM_AARCH64 (183) */
    uint16_t type;    /* ET_DYN, ET_EXEC */
    bool has_dynsym;
    bool has_symtab;
    size_t build_id_len;
    uint8_t build_id[LTN_ELF_BUILD_ID_BYTES];
    char soname[LTN_ELF_SONAME_BYTES]; /* cleaned, "" = none */
};

/* In: name. Out: the rest. */
struct ltn_elf_sym {
    const char *name; /* borrowed; plain, without "@VERSION" */
    bool found;
    bool weak;
    bool local;           /* found in .symtab as a local symbol (static library inside) */
    uint32_t alias_of;    /* index + 1 of the first entry with the same file offset; 0 = none */
    uint64_t file_offset; /* st_value - p_vaddr + p_offset of its executable segment */
    uint64_t address;     /* st_value */
    uint64_t size_bytes;  /* st_size, 0 = not said */
    uint8_t code[LTN_ELF_CODE_BYTES]; /* first bytes at the function */
    uint8_t code_len;                 /* 16, or less at the end of the segment */
};

struct ltn_elf;

/* Opens a file by path or borrows a descriptor (which must stay open and is not moved) and reads
 * its headers. 0, -errno, LTN_ERR_MALFORMED, LTN_ERR_UNSUPPORTED (other class, byte order or
 * machine), LTN_ERR_COUNT, LTN_ERR_TOO_LARGE. Free with ltn_elf_free. */
int ltn_elf_open(const char *path, struct ltn_elf **ret) ltn_must_check;
int ltn_elf_open_fd(int fd, struct ltn_elf **ret) ltn_must_check;
void ltn_elf_free(struct ltn_elf *elf);

/* Owned by elf. */
const struct ltn_elf_info *ltn_elf_info(const struct ltn_elf *elf);

/* Which tables to look in. */
#define LTN_ELF_DYNSYM 1u
#define LTN_ELF_SYMTAB 2u
/* Data instead of functions: only address and size_bytes are filled in. */
#define LTN_ELF_OBJECTS 4u

/* Looks all names up in one pass over each table asked for; .dynsym wins over .symtab, global over
 * local, and a name's default version over hidden ones. Only defined functions inside an executable
 * segment count, or with LTN_ELF_OBJECTS defined data anywhere. A name that is not there is no
 * error. 0, -errno, LTN_ERR_MALFORMED, LTN_ERR_TOO_LARGE (more symbols or names than the ceilings).
 */
int ltn_elf_lookup(struct ltn_elf *elf, unsigned tables, struct ltn_elf_sym *syms,
                   size_t count) ltn_must_check;

/* What to add to the file's addresses where it is mapped: map_start and pgoff_bytes are those of
 * one of its mappings. 0, or LTN_ERR_NOT_FOUND when no segment begins there. */
int ltn_elf_bias(const struct ltn_elf *elf, uint64_t map_start, uint64_t pgoff_bytes,
                 uint64_t *ret_bias) ltn_must_check;

/* Reads what the file holds for an address (before anything ran). 0, LTN_ERR_NOT_FOUND when the
 * file does not hold all n bytes, -errno. */
int ltn_elf_read_at_address(const struct ltn_elf *elf, uint64_t address, void *out,
                            size_t n) ltn_must_check;

/* A function of a table, for the way back from an address to a name. */
struct ltn_elf_function {
    uint64_t file_offset;
    uint64_t size_bytes; /* 0 = not said */
    uint32_t name;       /* for ltn_elf_name */
    uint8_t rank;        /* 0 local, 1 weak, 2 global */
};

/* Symbols in the one table named, functions or not; 0 when there is none. */
uint64_t ltn_elf_symbol_count(const struct ltn_elf *elf, unsigned table);

/* Calls fn for each defined function inside an executable segment of the one table named, in the
 * file's order; a negative answer of fn ends the walk and is returned. Else 0, -errno,
 * LTN_ERR_MALFORMED, LTN_ERR_TOO_LARGE. */
int ltn_elf_functions(struct ltn_elf *elf, unsigned table,
                      int (*fn)(void *arg, const struct ltn_elf_function *f),
                      void *arg) ltn_must_check;

/* The name of a function, as it stands in the file (not cleaned), without "@VERSION"; cut to size -
 * 1 bytes. 0, -errno, LTN_ERR_MALFORMED. */
int ltn_elf_name(const struct ltn_elf *elf, unsigned table, uint32_t name, char *out,
                 size_t size) ltn_must_check;

#endif /* LTN_DISCOVER_ELF_H */
