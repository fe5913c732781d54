/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registry of the distinct library files of interest and of the processes that map each. A file is
 * told by device, inode and (because overlay mounts show one file under several devices) build id.
 * One thread at a time.
 */
#ifndef LTN_DISCOVER_LIBS_H
#define LTN_DISCOVER_LIBS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/attr.h"
#include "discover/elf.h"
#include "discover/maps.h"

#define LTN_LIB_PATH_BYTES 512

/* What an embedding file carries. */
#define LTN_EMBEDS_CUDART 1u
#define LTN_EMBEDS_NCCL   2u

/* One process that maps the file, and where its first mapping lies. */
struct ltn_lib_user {
    pid_t pid;
    uint64_t map_start;
    uint64_t map_end;
};

/* One distinct file. Read-only for users of the registry. */
struct ltn_lib {
    uint32_t id; /* never reused, starts at 1 */
    enum ltn_lib_kind kind;
    unsigned embeds;  /* LTN_EMBEDS_*, for LTN_LIB_EMBEDDED */
    bool stripped;    /* its runtime has no symbols: functions are found by their code */
    bool deleted;     /* no longer reachable by its path */
    bool readable;    /* the agent could open it and it is a supported ELF file */
    bool given;       /* named by the user, kept without processes */
    int open_error;   /* why not readable: -errno or LTN_ERR_* */
    uint16_t machine; /* EM_X86_64, EM_AARCH64 */
    uint64_t dev;     /* as in /proc/PID/maps, makedev() form */
    uint64_t ino;
    uint64_t size_bytes;
    uint64_t mtime_ns;
    uint32_t twin_id; /* older file with the same build id and another dev:inode; 0 = none */
    uint8_t build_id[LTN_ELF_BUILD_ID_BYTES];
    size_t build_id_len;
    char soname[LTN_ELF_SONAME_BYTES]; /* cleaned, "" = none */
    char path[LTN_LIB_PATH_BYTES];     /* in the first process's view, cleaned: for people only */
    struct ltn_lib_user *users;        /* ascending pid */
    size_t user_count;
    size_t user_size;
    char *raw_path; /* path as the kernel gave it, for opening */
};

struct ltn_libs;

/* Registry for at most max_files files. NULL when memory is out. Free with ltn_libs_free. */
struct ltn_libs *ltn_libs_new(size_t max_files) ltn_must_check;
void ltn_libs_free(struct ltn_libs *libs);

/* Notes that the process maps the file of this line; the file is opened and read when it is new.
 * kind as told by the name, or LTN_LIB_EMBEDDED to look inside (a file that embeds nothing is
 * remembered as such and *ret_lib is NULL). *ret_new_file and *ret_new_user say what changed. 0,
 * LTN_ERR_COUNT at a ceiling, -ENOMEM. *ret_lib is owned by the registry, valid until
 * ltn_libs_sweep. */
int ltn_libs_map(struct ltn_libs *libs, pid_t pid, const struct ltn_map_line *line,
                 enum ltn_lib_kind kind, struct ltn_lib **ret_lib, bool *ret_new_file,
                 bool *ret_new_user) ltn_must_check;

/* Was the file in this state looked into before, and nothing of interest found? */
bool ltn_libs_is_plain(const struct ltn_libs *libs, const struct stat *st);

/* Adds a file of the agent's own view, named by the user, looked into whatever its name. It stays
 * when no process maps it. 0, -errno when it cannot be opened, LTN_ERR_NOT_FOUND when it carries
 * none of the functions, LTN_ERR_MALFORMED, LTN_ERR_UNSUPPORTED. */
int ltn_libs_give(struct ltn_libs *libs, const char *path, struct ltn_lib **ret_lib) ltn_must_check;

/* Forgets that the process maps the file. True when it was a user. */
bool ltn_libs_unmap(struct ltn_libs *libs, struct ltn_lib *lib, pid_t pid);

/* Frees one file that has no users and was not given; false when none is left. before is called
 * with it first (may be NULL). */
bool ltn_libs_sweep(struct ltn_libs *libs, void (*before)(const struct ltn_lib *, void *),
                    void *arg);

/* File by id, or NULL. Walk: start with *pos = 0; NULL at the end. */
const struct ltn_lib *ltn_libs_get(const struct ltn_libs *libs, uint32_t id);
struct ltn_lib *ltn_libs_next(const struct ltn_libs *libs, size_t *pos);
size_t ltn_libs_count(const struct ltn_libs *libs);

/* Does the process map the file? */
bool ltn_lib_has_user(const struct ltn_lib *lib, pid_t pid);

/* Looks functions up in the open file of this library, whichever way it takes: its symbol tables
 * or, in a program that was stripped, its code. As ltn_elf_lookup. */
int ltn_lib_lookup(const struct ltn_lib *lib, struct ltn_elf *elf, struct ltn_elf_sym *syms,
                   size_t count) ltn_must_check;

/* Opens exactly the mapped file for reading, through the root directory of a process that maps it
 * (symbolic links of that root stay inside it) or, when the file was deleted or replaced, through
 * /proc/PID/map_files; only regular files, never waiting. Returns a descriptor the caller closes,
 * or -errno; -ESTALE when the path now leads to another file and map_files is not permitted;
 * -ESRCH when the processes asked are gone.
 * Attach uprobes to "/proc/self/fd/N" of this descriptor: it cannot be swapped underneath. */
int ltn_lib_open(const struct ltn_lib *lib) ltn_must_check;

/* Path the agent could open the file by now ("/proc/PID/root/...", or "/proc/PID/map_files/A-B"),
 * for messages and for tools that want a path. 0, LTN_ERR_TOO_LARGE, LTN_ERR_NOT_FOUND when no
 * process is left. It is good only while that process lives. */
int ltn_lib_agent_path(const struct ltn_lib *lib, char out[PATH_MAX]) ltn_must_check;

/* Is the process's copy of this byte of the file a breakpoint now? Reads /proc/PID/mem. 1 yes, 0
 * no, -errno. For overlay twins: a probe through one mount may already cover the other. */
int ltn_lib_is_probed(const struct ltn_lib *lib, pid_t pid, uint64_t file_offset) ltn_must_check;

#endif /* LTN_DISCOVER_LIBS_H */
