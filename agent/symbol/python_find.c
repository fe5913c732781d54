/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python_find.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "discover/elf.h"
#include "discover/libs.h"
#include "discover/maps.h"
#include "symbol/python_layout.h"

/* Bytes of struct pthread before its table of blocks; the first block lies right before it. */
#define FIRST_BLOCK_BYTES 512
/* Size of _PyRuntime in the versions that do not say what they are. */
#define RUNTIME_BYTES_3_9  656
#define RUNTIME_BYTES_3_10 672
#define LEVEL_CANDIDATE    0xc /* of PY_VERSION_HEX: layouts are settled from here on */

enum python_symbol { SYM_RUNTIME, SYM_VERSION, SYM_CODE, SYM_TEXT, SYM_BYTES, SYM_COUNT };
static const char *const symbol_names[SYM_COUNT] = {"_PyRuntime", "Py_Version", "PyCode_Type",
                                                    "PyUnicode_Type", "PyBytes_Type"};

enum module_kind { MODULE_EXE, MODULE_LIBRARY, MODULE_LIBC, MODULE_LIBPTHREAD, MODULE_COUNT };

/* A mapped file that matters. */
struct module {
    struct ltn_elf *elf; /* NULL = the process has no such file */
    int fd;
    uint64_t bias;
    uint32_t minor; /* of the 3.N in its name; 0 = none there */
    struct ltn_elf_sym symbols[SYM_COUNT];
};

struct search {
    pid_t pid;
    char exe[PATH_MAX]; /* the program, as the list of mappings names it */
    int error;          /* why a file that matters could not be read */
    struct module modules[MODULE_COUNT];
};

/* ---- the files ---------------------------------------------------------------------------------
 */

static bool begins(const char *name, size_t len, const char *with)
{
    size_t n = strlen(with);
    return len >= n && memcmp(name, with, n) == 0;
}

/* Minor version out of "python3.11" or "libpython3.11.so.1.0". */
static uint32_t minor_of(const char *name, size_t len)
{
    const char key[] = "python3.";
    const char *at = memmem(name, len, key, sizeof(key) - 1);
    uint32_t minor = 0;
    if (at != NULL) {
        for (at += sizeof(key) - 1; at < name + len && *at >= '0' && *at <= '9' && minor < 100;
             at++) {
            minor = minor * 10 + (uint32_t)(*at - '0');
        }
    }
    return minor;
}

static enum module_kind kind_of(const struct search *s, const struct ltn_map_line *line,
                                const char *name, size_t len)
{
    if (line->path_len == strlen(s->exe) && memcmp(line->path, s->exe, line->path_len) == 0) {
        return MODULE_EXE;
    }
    if (begins(name, len, "libpython3.") && minor_of(name, len) != 0) {
        return MODULE_LIBRARY; /* not libpython3.so, which only refers to it */
    }
    if (begins(name, len, "libc.so.6") || begins(name, len, "libc-2.")) {
        return MODULE_LIBC;
    }
    if (begins(name, len, "libpthread.so.0") || begins(name, len, "libpthread-2.")) {
        return MODULE_LIBPTHREAD;
    }
    return MODULE_COUNT;
}

/* Opens exactly the file of this mapping. */
static int open_line(pid_t pid, const struct ltn_map_line *line)
{
    char path[PATH_MAX];
    if (line->path_len >= sizeof(path)) {
        return LTN_ERR_TOO_LARGE;
    }
    memcpy(path, line->path, line->path_len);
    path[line->path_len] = '\0';
    struct ltn_lib_user user = {.pid = pid, .map_start = line->start, .map_end = line->end};
    const struct ltn_lib lib = {
        .raw_path = path,
        .deleted = line->deleted,
        .dev = makedev(line->dev_major, line->dev_minor),
        .ino = line->ino,
        .users = &user,
        .user_count = 1,
    };
    return ltn_lib_open(&lib);
}

static int open_module(struct search *s, const struct ltn_map_line *line, struct module *m)
{
    int fd = open_line(s->pid, line);
    if (fd < 0) {
        return fd;
    }
    int rc = ltn_elf_open_fd(fd, &m->elf);
    if (rc == 0) {
        rc = ltn_elf_bias(m->elf, line->start, line->pgoff_bytes, &m->bias);
    }
    if (rc < 0) {
        ltn_elf_free(m->elf);
        m->elf = NULL;
        (void)close(fd);
        return rc;
    }
    m->fd = fd;
    if (ltn_elf_info(m->elf)->type == ET_EXEC) {
        m->bias = 0;
    }
    return 0;
}

static void close_modules(struct search *s)
{
    for (size_t i = 0; i < MODULE_COUNT; i++) {
        if (s->modules[i].elf != NULL) {
            ltn_elf_free(s->modules[i].elf);
            (void)close(s->modules[i].fd);
        }
    }
}

/* Notes the files that matter, by the mapping that begins each. */
static void look_at_maps(struct search *s, const char *text, size_t len)
{
    size_t pos = 0;
    struct ltn_map_line line;
    while (ltn_maps_next(text, len, &pos, &line)) {
        if (line.path_len == 0 || line.path[0] != '/' || line.pgoff_bytes != 0) {
            continue;
        }
        const char *slash = memrchr(line.path, '/', line.path_len);
        const char *name = slash + 1;
        size_t name_len = line.path_len - (size_t)(name - line.path);
        enum module_kind kind = kind_of(s, &line, name, name_len);
        if (kind == MODULE_COUNT || s->modules[kind].elf != NULL) {
            continue;
        }
        struct module *m = &s->modules[kind];
        int rc = open_module(s, &line, m);
        m->minor = rc == 0 ? minor_of(name, name_len) : 0;
        if (rc < 0 && s->error == 0) {
            s->error = rc;
        }
    }
}

/* By name: inodes in the list of mappings are not those of stat(2) on every file system. */
static void read_exe(struct search *s)
{
    static const char deleted[] = " (deleted)";
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)s->pid);
    ssize_t n = readlink(path, s->exe, sizeof(s->exe) - 1);
    s->exe[n > 0 ? n : 0] = '\0';
    size_t mark = sizeof(deleted) - 1;
    if ((size_t)n > mark && n > 0 && strcmp(s->exe + (size_t)n - mark, deleted) == 0) {
        s->exe[(size_t)n - mark] = '\0';
    }
}

static int read_modules(struct search *s)
{
    char path[64];
    read_exe(s);
    struct ltn_buf maps;
    ltn_buf_init(&maps, LTN_MAPS_MAX_BYTES);
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)s->pid);
    int rc = ltn_file_read(path, &maps);
    if (rc == 0) {
        look_at_maps(s, ltn_buf_str(&maps), maps.len);
    }
    ltn_buf_done(&maps);
    return rc == -ENOENT ? -ESRCH : rc;
}

/* ---- the symbols -------------------------------------------------------------------------------
 */

static int look_up(struct module *m, unsigned tables)
{
    if (m->elf == NULL) {
        return 0;
    }
    for (size_t i = 0; i < SYM_COUNT; i++) {
        m->symbols[i] = (struct ltn_elf_sym){.name = symbol_names[i]};
    }
    return ltn_elf_lookup(m->elf, tables | LTN_ELF_OBJECTS, m->symbols, SYM_COUNT);
}

/* Data that a program refers to by name is copied into it: its own definition is the one in use. */
static const struct module *definer(const struct search *s, enum python_symbol symbol)
{
    for (size_t i = MODULE_EXE; i <= MODULE_LIBRARY; i++) {
        if (s->modules[i].symbols[symbol].found) {
            return &s->modules[i];
        }
    }
    return NULL;
}

static uint64_t address_of(const struct search *s, enum python_symbol symbol)
{
    const struct module *m = definer(s, symbol);
    return m != NULL ? m->symbols[symbol].address + m->bias : 0;
}

static int find_symbols(struct search *s)
{
    static const unsigned tables[] = {LTN_ELF_DYNSYM, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(tables); i++) {
        for (size_t k = MODULE_EXE; k <= MODULE_LIBRARY; k++) {
            if ((tables[i] & LTN_ELF_SYMTAB) != 0 && s->modules[k].minor == 0) {
                continue; /* the symbols of any large program would be read for nothing */
            }
            int rc = look_up(&s->modules[k], tables[i]);
            if (rc < 0) {
                return rc;
            }
        }
        if (definer(s, SYM_RUNTIME) != NULL) {
            return 0;
        }
    }
    return LTN_ERR_NOT_FOUND;
}

/* What the file that initialises a symbol has for it; false when no file does. */
static bool initial(const struct search *s, enum python_symbol symbol, void *out, size_t n)
{
    for (size_t i = MODULE_EXE; i <= MODULE_LIBRARY; i++) {
        const struct module *m = &s->modules[i];
        if (m->symbols[symbol].found &&
            ltn_elf_read_at_address(m->elf, m->symbols[symbol].address, out, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Version by size or name, for 3.9 and 3.10. */
static uint32_t old_version(const struct search *s)
{
    uint64_t size = definer(s, SYM_RUNTIME)->symbols[SYM_RUNTIME].size_bytes;
    uint32_t minor = 0;
    for (size_t i = MODULE_EXE; i <= MODULE_LIBRARY && minor == 0; i++) {
        minor = s->modules[i].minor;
    }
    if (minor == 0 && size == RUNTIME_BYTES_3_9) {
        minor = 9;
    } else if (minor == 0 && size == RUNTIME_BYTES_3_10) {
        minor = 10;
    }
    return minor != 0 ? LTN_PYTHON_VERSION(3, minor) : 0;
}

/* 0 when nothing tells. */
static uint32_t version_of(const struct search *s, const uint8_t *runtime, size_t runtime_bytes)
{
    uint32_t version = ltn_python_layout_version(runtime, runtime_bytes);
    uint64_t hex;
    if (version == 0 && initial(s, SYM_VERSION, &hex, sizeof(hex)) && hex <= UINT32_MAX) {
        return (hex >> 4 & 15) >= LEVEL_CANDIDATE ? (uint32_t)(hex >> 16) : 0;
    }
    return version != 0 ? version : old_version(s);
}

/* One of the constants that the C library exports for debuggers: {bits, count, offset}, or a size.
 */
static bool debugger_constant(const struct module *m, const char *name, uint32_t *out, size_t n)
{
    struct ltn_elf_sym symbol = {.name = name};
    return m->elf != NULL &&
           ltn_elf_lookup(m->elf, LTN_ELF_DYNSYM | LTN_ELF_OBJECTS, &symbol, 1) == 0 &&
           symbol.found && ltn_elf_read_at_address(m->elf, symbol.address, out, n) == 0;
}

/* Where thread-specific values lie; without that the kernel searches the list of threads. */
static void find_thread_layout(const struct search *s, struct ltn_python_process *p)
{
    uint32_t specific[3];
    uint32_t size;
    for (size_t i = MODULE_LIBC; i <= MODULE_LIBPTHREAD; i++) {
        const struct module *m = &s->modules[i];
        if (debugger_constant(m, "_thread_db_pthread_specific", specific, sizeof(specific)) &&
            specific[2] >= FIRST_BLOCK_BYTES && specific[2] < 65536) {
            p->specific = specific[2];
            p->specific_first = specific[2] - FIRST_BLOCK_BYTES;
        }
        if (debugger_constant(m, "_thread_db_pthread_tid", specific, sizeof(specific)) &&
            specific[2] < 65536) {
            p->thread_tid = specific[2];
        }
        /* On arm64 struct pthread lies right before what the thread pointer points to. */
        if (m->elf != NULL && ltn_elf_info(m->elf)->machine == EM_AARCH64 &&
            debugger_constant(m, "_thread_db_sizeof_pthread", &size, sizeof(size))) {
            p->thread_shift = 0ULL - size;
        }
    }
}

/* ---- all together ------------------------------------------------------------------------------
 */

void ltn_python_version_name(uint32_t version, char out[LTN_PYTHON_VERSION_BYTES])
{
    if (version == 0) {
        (void)snprintf(out, LTN_PYTHON_VERSION_BYTES, "?");
        return;
    }
    (void)snprintf(out, LTN_PYTHON_VERSION_BYTES, "%u.%u%s", version >> 8 & 0xff, version & 0xff,
                   version & LTN_PYTHON_FREE_THREADED ? "t" : "");
}

static int fill(const struct search *s, struct ltn_python_process *p, struct ltn_errinfo *info)
{
    uint8_t runtime[LTN_PYTHON_DEBUG_BYTES];
    size_t runtime_bytes = initial(s, SYM_RUNTIME, runtime, sizeof(runtime)) ? sizeof(runtime) : 0;
    uint32_t version = version_of(s, runtime, runtime_bytes);
    char name[LTN_PYTHON_VERSION_BYTES];
    ltn_python_version_name(version, name);
    int rc = ltn_python_layout_get(version, p);
    if (rc < 0) {
        return ltn_errinfo_set(info, rc,
                               "Python %s of process %d is not one whose frames are known", name,
                               (int)s->pid);
    }
    bool agreed;
    if (ltn_python_layout_version(runtime, runtime_bytes) != 0) {
        rc = ltn_python_layout_adopt(runtime, runtime_bytes, p, &agreed);
    }
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "Python %s of process %d publishes offsets that cannot be",
                               name, (int)s->pid);
    }
    p->runtime = address_of(s, SYM_RUNTIME);
    p->code_type = address_of(s, SYM_CODE);
    p->text_type = address_of(s, SYM_TEXT);
    p->bytes_type = address_of(s, SYM_BYTES);
    find_thread_layout(s, p);
    if (getrandom(&p->seed, sizeof(p->seed), GRND_NONBLOCK) != (ssize_t)sizeof(p->seed)) {
        return ltn_errinfo_set(info, -EAGAIN, "the kernel has no random numbers yet");
    }
    return 0;
}

int ltn_python_find(pid_t pid, struct ltn_python_process *ret, struct ltn_errinfo *info)
{
    struct search s = {.pid = pid};
    struct ltn_python_process p;
    int rc = read_modules(&s);
    if (rc == 0) {
        rc = find_symbols(&s);
    }
    if (rc == LTN_ERR_NOT_FOUND && s.error < 0) {
        rc = ltn_errinfo_set(info, s.error, "cannot read the program files of process %d: %s",
                             (int)pid, ltn_err_str(s.error));
    } else if (rc < 0 && rc != LTN_ERR_NOT_FOUND) {
        (void)ltn_errinfo_set(info, rc, "cannot look for Python in process %d: %s", (int)pid,
                              ltn_err_str(rc));
    } else if (rc == 0) {
        rc = fill(&s, &p, info);
    }
    close_modules(&s);
    if (rc == 0) {
        *ret = p;
    }
    return rc;
}
