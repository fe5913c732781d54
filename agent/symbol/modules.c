/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "discover/maps.h"

#define VDSO_MAX_BYTES (64U * 1024)

struct module {
    struct ltn_module_key key;
    struct ltn_symtab *table; /* NULL: known not to be readable */
    uint64_t used;
};

struct ltn_modules {
    struct ltn_map by_key;
    size_t max_bytes;
    size_t max_files;
    uint64_t uses;
    struct ltn_symtab *vdso;
    bool vdso_tried;
    struct ltn_modules_stats stats;
};

static void free_module(void *arg)
{
    struct module *k = arg;
    ltn_symtab_free(k->table);
    free(k);
}

struct ltn_modules *ltn_modules_new(size_t max_bytes, size_t max_files)
{
    struct ltn_modules *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->max_bytes = max_bytes;
        m->max_files = max_files;
        ltn_map_init(&m->by_key, max_files + 1);
    }
    return m;
}

void ltn_modules_free(struct ltn_modules *m)
{
    if (m == NULL) {
        return;
    }
    ltn_map_done(&m->by_key, free_module);
    ltn_symtab_free(m->vdso);
    free(m);
}

void ltn_modules_stats(const struct ltn_modules *m, struct ltn_modules_stats *ret)
{
    *ret = m->stats;
    ret->files = m->by_key.len;
}

static void drop(struct ltn_modules *m, struct module *k)
{
    (void)ltn_map_del(&m->by_key, k->key.bytes, k->key.len);
    m->stats.bytes -= ltn_symtab_bytes(k->table);
    m->stats.evicted_total++;
    free_module(k);
}

/* Makes room for one more; the newest stays even when it is too large alone. */
static void evict(struct ltn_modules *m, const struct module *newest)
{
    while (m->by_key.len > m->max_files || m->stats.bytes > m->max_bytes) {
        size_t pos = 0;
        struct module *oldest = NULL;
        struct module *each;
        while ((each = ltn_map_next(&m->by_key, &pos)) != NULL) {
            if (each != newest && (oldest == NULL || each->used < oldest->used)) {
                oldest = each;
            }
        }
        if (oldest == NULL) {
            return;
        }
        drop(m, oldest);
    }
}

static int open_regular(const char *path, const struct ltn_mapping *map, bool same_inode)
{
    struct stat st;
    struct statfs fs;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return -errno;
    }
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    /* An overlay shows other numbers in maps than to stat; that the file was replaced would stand
     * in maps all the same. */
    if (ok && same_inode && (uint64_t)st.st_ino != map->ino) {
        ok = fstatfs(fd, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
    }
    if (!ok) {
        (void)close(fd);
        return -ESTALE;
    }
    return fd;
}

static int open_mapped(uint32_t pid, const struct ltn_mapping *map)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%u/map_files/%llx-%llx", pid,
                   (unsigned long long)map->start, (unsigned long long)map->end);
    int fd = open_regular(path, map, false);
    if (fd >= 0 || map->deleted) {
        return fd;
    }
    int n = snprintf(path, sizeof(path), "/proc/%u/root%s", pid, map->path);
    if (n > 0 && (size_t)n < sizeof(path)) {
        fd = open_regular(path, map, true);
    }
    if (fd < 0) {
        (void)snprintf(path, sizeof(path), "/proc/%u/exe", pid);
        int exe = open_regular(path, map, true);
        fd = exe >= 0 ? exe : fd;
    }
    return fd;
}

static void put_u64(struct ltn_module_key *key, uint64_t v)
{
    memcpy(key->bytes + key->len, &v, sizeof(v));
    key->len = (uint8_t)(key->len + sizeof(v));
}

static void make_key(const struct ltn_elf_info *info, const struct stat *st,
                     struct ltn_module_key *key)
{
    *key = (struct ltn_module_key){0};
    if (info->build_id_len > 0) {
        key->is_build_id = true;
        key->len = (uint8_t)info->build_id_len;
        memcpy(key->bytes, info->build_id, info->build_id_len);
        return;
    }
    put_u64(key, st->st_dev);
    put_u64(key, st->st_ino);
    put_u64(key, (uint64_t)st->st_size);
    put_u64(key, (uint64_t)st->st_mtim.tv_sec);
    put_u64(key, (uint64_t)st->st_mtim.tv_nsec);
}

/* The key alone takes only the headers. */
static int read_key(int fd, struct ltn_module_key *key)
{
    struct stat st;
    struct ltn_elf *elf = NULL;
    int rc = fstat(fd, &st) < 0 ? -errno : ltn_elf_open_fd(fd, &elf);
    if (rc == 0) {
        make_key(ltn_elf_info(elf), &st, key);
    }
    ltn_elf_free(elf);
    return rc;
}

static struct module *find(struct ltn_modules *m, const struct ltn_module_key *key)
{
    struct module *k = key->len > 0 ? ltn_map_get(&m->by_key, key->bytes, key->len) : NULL;
    if (k != NULL) {
        k->used = ++m->uses;
    }
    return k;
}

/* Takes over fd. */
static int add(struct ltn_modules *m, int fd, const struct ltn_module_key *key)
{
    struct module *k = calloc(1, sizeof(*k));
    if (k == NULL) {
        (void)close(fd);
        return -ENOMEM;
    }
    k->key = *key;
    k->used = ++m->uses;
    int rc = ltn_symtab_open(fd, &k->table);
    if (rc == 0) {
        rc = ltn_map_put(&m->by_key, key->bytes, key->len, k);
    }
    if (rc < 0) {
        free_module(k);
        return rc;
    }
    m->stats.opened_total++;
    m->stats.bytes += ltn_symtab_bytes(k->table);
    evict(m, k);
    return 0;
}

static int load(struct ltn_modules *m, uint32_t pid, struct ltn_mapping *map)
{
    int fd = open_mapped(pid, map);
    if (fd < 0) {
        return fd;
    }
    int rc = read_key(fd, &map->key);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    const struct module *known = find(m, &map->key);
    return known != NULL ? ltn_symtab_wake(known->table, fd) : add(m, fd, &map->key);
}

/* The file may be another one by now. */
static int wake(uint32_t pid, const struct ltn_mapping *map, struct ltn_symtab *table)
{
    struct ltn_module_key key;
    int fd = open_mapped(pid, map);
    if (fd < 0) {
        return fd;
    }
    int rc = read_key(fd, &key);
    if (rc == 0 && (key.len != map->key.len || memcmp(key.bytes, map->key.bytes, key.len) != 0)) {
        rc = -ESTALE;
    }
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    return ltn_symtab_wake(table, fd);
}

int ltn_modules_name(struct ltn_modules *m, uint32_t pid, struct ltn_mapping *map,
                     uint64_t file_offset, char *out, size_t size)
{
    struct ltn_symtab *t = ltn_modules_of(m, pid, map);
    int rc = t != NULL ? ltn_symtab_name(t, file_offset, out, size) : LTN_ERR_NOT_FOUND;
    if (rc == -EBADF) {
        rc = wake(pid, map, t);
        if (rc == 0) {
            rc = ltn_symtab_name(t, file_offset, out, size);
        }
    }
    return rc;
}

void ltn_modules_rest(struct ltn_modules *m)
{
    size_t pos = 0;
    struct module *each;
    while ((each = ltn_map_next(&m->by_key, &pos)) != NULL) {
        ltn_symtab_rest(each->table);
    }
}

struct ltn_symtab *ltn_modules_of(struct ltn_modules *m, uint32_t pid, struct ltn_mapping *map)
{
    struct module *k = find(m, &map->key);
    if (k == NULL && map->open_error == 0) {
        map->open_error = load(m, pid, map);
        m->stats.failed_total += map->open_error < 0;
        k = find(m, &map->key);
    }
    return k != NULL ? k->table : NULL;
}

/* ---- the vDSO ---- */

/* Its size, from the maps of this process; 0 = not found. */
static size_t vdso_bytes(uint64_t start)
{
    struct ltn_buf text;
    struct ltn_map_line line;
    size_t pos = 0;
    size_t bytes = 0;
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    int rc = ltn_file_read("/proc/self/maps", &text);
    while (rc == 0 && ltn_maps_next(ltn_buf_str(&text), text.len, &pos, &line)) {
        if (line.start == start && line.end - line.start <= VDSO_MAX_BYTES) {
            bytes = (size_t)(line.end - line.start);
        }
    }
    ltn_buf_done(&text);
    return bytes;
}

/* It is in no file; the table reads files. */
static int copy_vdso(void)
{
    uint64_t start = getauxval(AT_SYSINFO_EHDR);
    size_t bytes = start != 0 ? vdso_bytes(start) : 0;
    int fd = bytes > 0 ? memfd_create("vdso", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ltn_fd_write_all(fd, (const void *)(uintptr_t)start, bytes) < 0) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

struct ltn_symtab *ltn_modules_vdso(struct ltn_modules *m)
{
    if (!m->vdso_tried) {
        m->vdso_tried = true;
        int fd = copy_vdso();
        if (fd >= 0 && ltn_symtab_open(fd, &m->vdso) < 0) {
            m->vdso = NULL;
        }
    }
    return m->vdso;
}
