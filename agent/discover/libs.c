/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/libs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "base/text.h"
#include "discover/cudart_code.h"
#include "discover/file_id.h"

#define MAX_USERS_A_FILE 65536u
#define MAX_PLAIN_FILES  4096u /* files looked into and found without anything of interest */
#define OPEN_TRIES       16    /* users asked for their view of a file */

#define BRK_UPROBE_ARM64 0xd42000a0u
#define INT3_X86         0xccu

struct ltn_libs {
    struct ltn_lib **files; /* in order of id */
    size_t count;
    size_t size;
    size_t max_files;
    uint32_t last_id;
    struct ltn_map plain; /* struct ltn_file_state -> marker */
};

static char plain_marker;

struct ltn_libs *ltn_libs_new(size_t max_files)
{
    struct ltn_libs *libs = calloc(1, sizeof(*libs));
    if (libs != NULL) {
        libs->max_files = max_files;
        ltn_map_init(&libs->plain, MAX_PLAIN_FILES);
    }
    return libs;
}

static void lib_free(struct ltn_lib *lib)
{
    free(lib->users);
    free(lib->raw_path);
    free(lib);
}

void ltn_libs_free(struct ltn_libs *libs)
{
    if (libs == NULL) {
        return;
    }
    for (size_t i = 0; i < libs->count; i++) {
        lib_free(libs->files[i]);
    }
    free(libs->files);
    ltn_map_done(&libs->plain, NULL);
    free(libs);
}

/* Index of the user, or of the place where it belongs. */
static size_t user_place(const struct ltn_lib *lib, pid_t pid)
{
    size_t low = 0;
    size_t high = lib->user_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (lib->users[mid].pid < pid) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

bool ltn_lib_has_user(const struct ltn_lib *lib, pid_t pid)
{
    size_t at = user_place(lib, pid);
    return at < lib->user_count && lib->users[at].pid == pid;
}

static int add_user(struct ltn_lib *lib, pid_t pid, const struct ltn_map_line *line, bool *ret_new)
{
    size_t at = user_place(lib, pid);
    if (at < lib->user_count && lib->users[at].pid == pid) {
        lib->users[at].map_start = line->start;
        lib->users[at].map_end = line->end;
        *ret_new = false;
        return 0;
    }
    if (lib->user_count >= MAX_USERS_A_FILE) {
        return LTN_ERR_COUNT;
    }
    if (lib->user_count == lib->user_size) {
        size_t size = lib->user_size == 0 ? 4 : lib->user_size * 2;
        struct ltn_lib_user *users = realloc(lib->users, size * sizeof(*users));
        if (users == NULL) {
            return -ENOMEM;
        }
        lib->users = users;
        lib->user_size = size;
    }
    memmove(&lib->users[at + 1], &lib->users[at], (lib->user_count - at) * sizeof(*lib->users));
    lib->users[at] =
        (struct ltn_lib_user){.pid = pid, .map_start = line->start, .map_end = line->end};
    lib->user_count++;
    *ret_new = true;
    return 0;
}

bool ltn_libs_unmap(struct ltn_libs *libs, struct ltn_lib *lib, pid_t pid)
{
    (void)libs;
    size_t at = user_place(lib, pid);
    if (at >= lib->user_count || lib->users[at].pid != pid) {
        return false;
    }
    lib->user_count--;
    memmove(&lib->users[at], &lib->users[at + 1], (lib->user_count - at) * sizeof(*lib->users));
    return true;
}

bool ltn_libs_sweep(struct ltn_libs *libs, void (*before)(const struct ltn_lib *, void *),
                    void *arg)
{
    for (size_t i = 0; i < libs->count; i++) {
        struct ltn_lib *lib = libs->files[i];
        if (lib->user_count > 0 || lib->given) {
            continue;
        }
        if (before != NULL) {
            before(lib, arg);
        }
        libs->count--;
        memmove(&libs->files[i], &libs->files[i + 1], (libs->count - i) * sizeof(libs->files[0]));
        lib_free(lib);
        return true;
    }
    return false;
}

const struct ltn_lib *ltn_libs_get(const struct ltn_libs *libs, uint32_t id)
{
    for (size_t i = 0; i < libs->count; i++) {
        if (libs->files[i]->id == id) {
            return libs->files[i];
        }
    }
    return NULL;
}

struct ltn_lib *ltn_libs_next(const struct ltn_libs *libs, size_t *pos)
{
    return *pos < libs->count ? libs->files[(*pos)++] : NULL;
}

size_t ltn_libs_count(const struct ltn_libs *libs)
{
    return libs->count;
}

static struct ltn_lib *find_file(const struct ltn_libs *libs, uint64_t dev, uint64_t ino)
{
    for (size_t i = 0; i < libs->count; i++) {
        if (libs->files[i]->ino == ino && libs->files[i]->dev == dev) {
            return libs->files[i];
        }
    }
    return NULL;
}

/* ---- opening ---- */

/* From a descriptor that only names a file to one that reads it; closes the former. Nothing is
 * opened that is not a regular file: opening a device or a fifo has effects. */
static int reopen_regular(int path_fd, struct stat *ret_st)
{
    char link[64];
    int rc;
    if (fstat(path_fd, ret_st) < 0) {
        rc = -errno;
    } else if (!S_ISREG(ret_st->st_mode)) {
        rc = LTN_ERR_UNSUPPORTED;
    } else {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
        int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        rc = fd < 0 ? -errno : fd;
    }
    (void)close(path_fd);
    return rc;
}

/* Names a file below the root directory of a process, without leaving that root. */
static int name_in_root(pid_t pid, const char *raw_path)
{
    char root[64];
    (void)snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        return -errno;
    }
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, root_fd, raw_path, &how, sizeof(how));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        /* Refused by a system call filter. The kernel gave the path without symbolic links, so
         * none is followed at its end; the caller compares the inode in any case. */
        const char *relative = raw_path;
        while (*relative == '/') {
            relative++;
        }
        fd = openat(root_fd, relative, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    }
    int rc = fd < 0 ? -errno : (int)fd;
    (void)close(root_fd);
    return rc;
}

/* File systems on which the device number of a mapping is not that of stat(2). */
static bool dev_is_unreliable(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == OVERLAYFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC);
}

static int open_mapping(const struct ltn_lib_user *user, struct stat *ret_st)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)user->pid,
                   (unsigned long long)user->map_start, (unsigned long long)user->map_end);
    int fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? -errno : reopen_regular(fd, ret_st);
}

/* The file as one process sees it. */
static int open_for_user(const struct ltn_lib *lib, const struct ltn_lib_user *user)
{
    struct stat st;
    int likely = -ESTALE;
    if (!lib->deleted) {
        int fd = name_in_root(user->pid, lib->raw_path);
        if (fd >= 0) {
            fd = reopen_regular(fd, &st);
        }
        if (fd >= 0 && st.st_ino == lib->ino && st.st_dev == lib->dev) {
            return fd;
        }
        if (fd >= 0 && st.st_ino == lib->ino && dev_is_unreliable(fd)) {
            likely = fd;
        } else if (fd >= 0) {
            (void)close(fd);
        } else {
            likely = fd;
        }
    }
    int fd = open_mapping(user, &st);
    if (fd >= 0 && (st.st_ino == lib->ino || likely >= 0)) {
        if (likely >= 0) {
            (void)close(likely);
        }
        return fd;
    }
    if (fd >= 0) {
        (void)close(fd);
        return -ESTALE; /* another file lies at these addresses by now */
    }
    if (likely == -ESTALE && lib->deleted) {
        return fd;
    }
    return likely;
}

/* A process that ended, waited for or not, has no root any more. */
static bool is_alive(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return errno == EACCES || errno == EPERM;
    }
    (void)close(fd);
    return true;
}

int ltn_lib_open(const struct ltn_lib *lib)
{
    if (lib->given && lib->user_count == 0) {
        int fd = open(lib->raw_path, O_PATH | O_CLOEXEC);
        struct stat st;
        return fd < 0 ? -errno : reopen_regular(fd, &st);
    }
    int rc = -ESRCH;
    for (size_t i = 0; i < lib->user_count && i < OPEN_TRIES; i++) {
        const struct ltn_lib_user *user = &lib->users[lib->user_count - 1 - i]; /* newest first */
        int one = open_for_user(lib, user);
        if (one >= 0) {
            return one;
        }
        if (rc == -ESRCH && is_alive(user->pid)) {
            rc = one;
        }
    }
    return rc;
}

int ltn_lib_agent_path(const struct ltn_lib *lib, char out[PATH_MAX])
{
    int n;
    if (lib->user_count == 0) {
        if (!lib->given) {
            return LTN_ERR_NOT_FOUND;
        }
        n = snprintf(out, PATH_MAX, "%s", lib->raw_path);
        return n >= PATH_MAX ? LTN_ERR_TOO_LARGE : 0;
    }
    const struct ltn_lib_user *u = &lib->users[0];
    struct stat st;
    n = snprintf(out, PATH_MAX, "/proc/%d/root%s", (int)u->pid, lib->raw_path);
    if (n < PATH_MAX && !lib->deleted && stat(out, &st) == 0 && st.st_ino == lib->ino) {
        return 0;
    }
    (void)snprintf(out, PATH_MAX, "/proc/%d/map_files/%llx-%llx", (int)u->pid,
                   (unsigned long long)u->map_start, (unsigned long long)u->map_end);
    return 0;
}

/* ---- what a file is ---- */

/* A few names that every copy of the library has. */
static const char *const cudart_names[] = {"cudaLaunchKernel", "cudaMalloc", "cudaFree",
                                           "cudaMemcpyAsync", "cudaStreamSynchronize"};
static const char *const nccl_names[] = {"ncclAllReduce", "ncclCommInitRank", "ncclGroupEnd"};

#define CUDART_NAMES LTN_ARRAY_SIZE(cudart_names)
#define NCCL_NAMES   LTN_ARRAY_SIZE(nccl_names)

/* A runtime whose symbols were stripped with the program's. */
static bool has_stripped_runtime(struct ltn_elf *elf)
{
    unsigned found;
    return !ltn_elf_info(elf)->has_symtab && ltn_cudart_find_code(elf, NULL, 0, &found) == 0 &&
           found >= LTN_CUDART_FUNCTIONS_MIN;
}

static int look_inside(struct ltn_elf *elf, struct ltn_lib *lib)
{
    struct ltn_elf_sym syms[CUDART_NAMES + NCCL_NAMES] = {0};
    for (size_t i = 0; i < CUDART_NAMES; i++) {
        syms[i].name = cudart_names[i];
    }
    for (size_t i = 0; i < NCCL_NAMES; i++) {
        syms[CUDART_NAMES + i].name = nccl_names[i];
    }
    int rc = ltn_elf_lookup(elf, LTN_ELF_DYNSYM | LTN_ELF_SYMTAB, syms, LTN_ARRAY_SIZE(syms));
    if (rc < 0) {
        return rc;
    }
    unsigned embeds = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(syms); i++) {
        if (syms[i].found) {
            embeds |= i < CUDART_NAMES ? LTN_EMBEDS_CUDART : LTN_EMBEDS_NCCL;
        }
    }
    if ((embeds & LTN_EMBEDS_CUDART) == 0 && has_stripped_runtime(elf)) {
        embeds |= LTN_EMBEDS_CUDART;
        lib->stripped = true;
    }
    lib->embeds = embeds;
    return 0;
}

int ltn_lib_lookup(const struct ltn_lib *lib, struct ltn_elf *elf, struct ltn_elf_sym *syms,
                   size_t count)
{
    unsigned tables =
        lib->kind == LTN_LIB_EMBEDDED ? LTN_ELF_DYNSYM | LTN_ELF_SYMTAB : LTN_ELF_DYNSYM;
    int rc = ltn_elf_lookup(elf, tables, syms, count);
    unsigned found;
    if (rc == 0 && lib->stripped) {
        rc = ltn_cudart_find_code(elf, syms, count, &found);
    }
    return rc;
}

static void note_plain(struct ltn_libs *libs, const struct ltn_file_state *key)
{
    if (libs->plain.len >= MAX_PLAIN_FILES) {
        ltn_map_done(&libs->plain, NULL); /* forgetting only costs another look */
        ltn_map_init(&libs->plain, MAX_PLAIN_FILES);
    }
    /* The same holds when memory is short. */
    int rc = ltn_map_put(&libs->plain, key, sizeof(*key), &plain_marker);
    (void)rc;
}

bool ltn_libs_is_plain(const struct ltn_libs *libs, const struct stat *st)
{
    struct ltn_file_state key = ltn_file_state_of(st);
    return ltn_map_get(&libs->plain, &key, sizeof(key)) != NULL;
}

/* Reads what stands in the open file. LTN_ERR_NOT_FOUND: to be looked into, and nothing there. */
static int inspect(struct ltn_libs *libs, struct ltn_lib *lib, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    struct ltn_file_state key = ltn_file_state_of(&st);
    lib->size_bytes = key.size_bytes;
    lib->mtime_ns = key.mtime_ns;
    bool embedded = lib->kind == LTN_LIB_EMBEDDED;
    if (embedded && ltn_map_get(&libs->plain, &key, sizeof(key)) != NULL) {
        return LTN_ERR_NOT_FOUND;
    }
    struct ltn_elf *elf;
    int rc = ltn_elf_open_fd(fd, &elf);
    if (rc < 0) {
        if (embedded) {
            note_plain(libs, &key);
        }
        return rc;
    }
    const struct ltn_elf_info *info = ltn_elf_info(elf);
    lib->machine = info->machine;
    lib->build_id_len = info->build_id_len;
    memcpy(lib->build_id, info->build_id, sizeof(lib->build_id));
    memcpy(lib->soname, info->soname, sizeof(lib->soname));
    if (embedded) {
        rc = look_inside(elf, lib);
        if (rc < 0 || lib->embeds == 0) {
            note_plain(libs, &key);
            rc = LTN_ERR_NOT_FOUND;
        }
    }
    ltn_elf_free(elf);
    return rc;
}

static void find_twin(const struct ltn_libs *libs, struct ltn_lib *lib)
{
    for (size_t i = 0; i < libs->count && lib->build_id_len > 0; i++) {
        const struct ltn_lib *other = libs->files[i];
        if (other != lib && other->build_id_len == lib->build_id_len &&
            memcmp(other->build_id, lib->build_id, lib->build_id_len) == 0) {
            lib->twin_id = other->twin_id != 0 ? other->twin_id : other->id;
            return;
        }
    }
}

static void read_content(struct ltn_libs *libs, struct ltn_lib *lib)
{
    int fd = ltn_lib_open(lib);
    int rc = fd;
    if (fd >= 0) {
        rc = inspect(libs, lib, fd);
        (void)close(fd);
    }
    lib->open_error = rc < 0 ? rc : 0;
    lib->readable = rc >= 0;
    if (lib->readable) {
        find_twin(libs, lib);
    }
}

static int make_room(struct ltn_libs *libs)
{
    if (libs->count >= libs->max_files) {
        return LTN_ERR_COUNT;
    }
    if (libs->count == libs->size) {
        size_t size = libs->size == 0 ? 16 : libs->size * 2;
        struct ltn_lib **files = realloc(libs->files, size * sizeof(*files));
        if (files == NULL) {
            return -ENOMEM;
        }
        libs->files = files;
        libs->size = size;
    }
    return 0;
}

static struct ltn_lib *lib_alloc(const char *path, size_t path_len, enum ltn_lib_kind kind)
{
    struct ltn_lib *lib = calloc(1, sizeof(*lib));
    if (lib == NULL) {
        return NULL;
    }
    lib->raw_path = strndup(path, path_len);
    if (lib->raw_path == NULL) {
        free(lib);
        return NULL;
    }
    lib->kind = kind;
    ltn_text_clean(lib->path, sizeof(lib->path), path, path_len);
    return lib;
}

static void take_in(struct ltn_libs *libs, struct ltn_lib *lib)
{
    lib->id = ++libs->last_id;
    libs->files[libs->count++] = lib;
}

static int map_new_file(struct ltn_libs *libs, pid_t pid, const struct ltn_map_line *line,
                        enum ltn_lib_kind kind, struct ltn_lib **ret_lib)
{
    int rc = make_room(libs);
    if (rc < 0) {
        return rc;
    }
    if (line->path_len == 0 || line->path_len >= PATH_MAX || line->path[0] != '/') {
        return LTN_ERR_MALFORMED;
    }
    struct ltn_lib *lib = lib_alloc(line->path, line->path_len, kind);
    if (lib == NULL) {
        return -ENOMEM;
    }
    lib->deleted = line->deleted;
    lib->dev = makedev(line->dev_major, line->dev_minor);
    lib->ino = line->ino;
    bool new_user;
    rc = add_user(lib, pid, line, &new_user);
    if (rc < 0) {
        lib_free(lib);
        return rc;
    }
    read_content(libs, lib);
    if (kind == LTN_LIB_EMBEDDED && !lib->readable) {
        lib_free(lib);
        *ret_lib = NULL;
        return 0;
    }
    take_in(libs, lib);
    *ret_lib = lib;
    return 0;
}

int ltn_libs_map(struct ltn_libs *libs, pid_t pid, const struct ltn_map_line *line,
                 enum ltn_lib_kind kind, struct ltn_lib **ret_lib, bool *ret_new_file,
                 bool *ret_new_user)
{
    struct ltn_lib *lib = find_file(libs, makedev(line->dev_major, line->dev_minor), line->ino);
    if (lib == NULL) {
        int rc = map_new_file(libs, pid, line, kind, &lib);
        if (rc < 0) {
            return rc;
        }
        *ret_lib = lib;
        *ret_new_file = lib != NULL;
        *ret_new_user = lib != NULL;
        return 0;
    }
    bool new_user;
    int rc = add_user(lib, pid, line, &new_user);
    if (rc < 0) {
        return rc;
    }
    lib->deleted = lib->deleted || line->deleted;
    if (new_user && !lib->readable) {
        read_content(libs, lib); /* the first process may have been gone too soon */
    }
    *ret_lib = lib;
    *ret_new_file = false;
    *ret_new_user = new_user;
    return 0;
}

int ltn_libs_give(struct ltn_libs *libs, const char *path, struct ltn_lib **ret_lib)
{
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    fd = reopen_regular(fd, &st);
    if (fd < 0) {
        return fd;
    }
    struct ltn_lib *lib = find_file(libs, st.st_dev, st.st_ino);
    if (lib != NULL) {
        (void)close(fd);
        lib->given = true;
        *ret_lib = lib;
        return 0;
    }
    char real[PATH_MAX];
    const char *kept = realpath(path, real) != NULL ? real : path;
    size_t len = strlen(kept);
    enum ltn_lib_kind kind = ltn_lib_kind_of_path(kept, len);
    lib = lib_alloc(kept, len, kind == LTN_LIB_NONE ? LTN_LIB_EMBEDDED : kind);
    int rc = lib == NULL ? -ENOMEM : make_room(libs);
    if (rc == 0) {
        lib->given = true;
        lib->dev = st.st_dev;
        lib->ino = st.st_ino;
        rc = inspect(libs, lib, fd);
    }
    (void)close(fd);
    if (rc < 0) {
        if (lib != NULL) {
            lib_free(lib);
        }
        return rc;
    }
    lib->readable = true;
    find_twin(libs, lib);
    take_in(libs, lib);
    *ret_lib = lib;
    return 0;
}

/* Address at which the process has this byte of the file as code. */
static int code_address(const struct ltn_lib *lib, pid_t pid, uint64_t file_offset, uint64_t *ret)
{
    char path[64];
    struct ltn_buf text;
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    int rc = ltn_file_read(path, &text);
    if (rc == LTN_ERR_TOO_LARGE) {
        rc = 0;
    }
    size_t pos = 0;
    struct ltn_map_line m;
    bool found = false;
    while (rc == 0 && !found && ltn_maps_next(text.data, text.len, &pos, &m)) {
        if (m.executable && m.ino == lib->ino && makedev(m.dev_major, m.dev_minor) == lib->dev &&
            file_offset >= m.pgoff_bytes && file_offset - m.pgoff_bytes < m.end - m.start) {
            *ret = m.start + (file_offset - m.pgoff_bytes);
            found = true;
        }
    }
    ltn_buf_done(&text);
    if (rc < 0) {
        return rc;
    }
    return found ? 0 : LTN_ERR_NOT_FOUND;
}

int ltn_lib_is_probed(const struct ltn_lib *lib, pid_t pid, uint64_t file_offset)
{
    uint64_t addr;
    int rc = code_address(lib, pid, file_offset, &addr);
    if (rc < 0) {
        return rc;
    }
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    uint8_t code[4] = {0};
    ssize_t n = pread(fd, code, sizeof(code), (off_t)addr);
    rc = n < 0 ? -errno : 0;
    (void)close(fd);
    if (rc < 0) {
        return rc;
    }
    if (lib->machine == 183) { /* EM_AARCH64 */
        uint32_t word = (uint32_t)code[0] | (uint32_t)code[1] << 8 | (uint32_t)code[2] << 16 |
                        (uint32_t)code[3] << 24;
        return n == 4 && word == BRK_UPROBE_ARM64;
    }
    return n >= 1 && code[0] == INT3_X86;
}
