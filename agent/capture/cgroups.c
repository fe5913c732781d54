/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/file.h"
#include "base/text.h"

#define REMEMBERED_MAX 4096
#define LEVELS_MAX     16
#define HANDLE_KERNFS  0xfe /* a kernfs node by its id */

/* cpu.stat of one folder: at the end of the window before, and now. */
struct reading {
    uint64_t window; /* in which now was read */
    bool known;      /* before holds something */
    uint64_t before[3];
    uint64_t now[3]; /* periods, throttled, throttled ns */
};

static void find_mounts(struct ltn_cgroups *c)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    if (f == NULL) {
        return;
    }
    char line[8192];
    struct mntent m;
    while (getmntent_r(f, &m, line, sizeof(line)) != NULL) {
        if (c->v2[0] == '\0' && strcmp(m.mnt_type, "cgroup2") == 0) {
            (void)ltn_copy_str(c->v2, sizeof(c->v2), m.mnt_dir);
        } else if (c->v1[0] == '\0' && strcmp(m.mnt_type, "cgroup") == 0 &&
                   hasmntopt(&m, "cpu") != NULL) {
            (void)ltn_copy_str(c->v1, sizeof(c->v1), m.mnt_dir);
        }
    }
    (void)endmntent(f);
}

void ltn_cgroups_init(struct ltn_cgroups *c)
{
    *c = (struct ltn_cgroups){.mount_fd = -1};
    ltn_map_init(&c->paths, REMEMBERED_MAX);
    ltn_map_init(&c->readings, REMEMBERED_MAX);
    find_mounts(c);
    if (c->v2[0] != '\0') {
        c->mount_fd = open(c->v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
}

void ltn_cgroups_done(struct ltn_cgroups *c)
{
    ltn_map_done(&c->paths, free);
    ltn_map_done(&c->readings, free);
    if (c->mount_fd >= 0) {
        (void)close(c->mount_fd);
    }
    c->mount_fd = -1;
}

void ltn_cgroups_turn(struct ltn_cgroups *c)
{
    c->window++;
    if (c->readings.len >= REMEMBERED_MAX) {
        ltn_map_done(&c->readings, free);
        ltn_map_init(&c->readings, REMEMBERED_MAX);
    }
}

/* ---- path of an id ---- */

/* Asks the kernel for the folder with this id and where it stands. */
static bool look_up(const struct ltn_cgroups *c, uint64_t id, char *out, size_t size)
{
    union {
        struct file_handle head;
        char room[sizeof(struct file_handle) + sizeof(uint64_t)];
    } handle = {.head = {.handle_bytes = sizeof(id), .handle_type = HANDLE_KERNFS}};
    memcpy(handle.head.f_handle, &id, sizeof(id));
    int fd = open_by_handle_at(c->mount_fd, &handle.head, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    char link[64];
    char path[2 * LTN_CGROUP_PATH_BYTES];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    (void)close(fd);
    if (n <= 0) {
        return false;
    }
    path[n] = '\0';
    size_t skip = strlen(c->v2);
    const char *below = strncmp(path, c->v2, skip) == 0 ? path + skip : path;
    ltn_text_clean(out, size, below[0] != '\0' ? below : "/", below[0] != '\0' ? strlen(below) : 1);
    return true;
}

const char *ltn_cgroups_path(struct ltn_cgroups *c, uint64_t id)
{
    char path[LTN_CGROUP_PATH_BYTES];
    const char *known = id != 0 ? ltn_map_get_u64(&c->paths, id) : NULL;
    if (known != NULL || id == 0 || c->mount_fd < 0 || !look_up(c, id, path, sizeof(path))) {
        return known;
    }
    if (c->paths.len >= REMEMBERED_MAX) {
        ltn_map_done(&c->paths, free);
        ltn_map_init(&c->paths, REMEMBERED_MAX);
    }
    char *copy = strdup(path);
    if (copy != NULL && ltn_map_put_u64(&c->paths, id, copy) != 0) {
        free(copy);
        copy = NULL;
    }
    return copy;
}

/* ---- CPU limits ---- */

static uint64_t number_of(const char *text, const char *key, bool *found)
{
    const char *at = strstr(text, key);
    if (at == NULL || (at != text && at[-1] != '\n')) {
        return 0;
    }
    *found = true;
    return strtoull(at + strlen(key), NULL, 10);
}

/* cpu.stat: version 2 counts microseconds, version 1 nanoseconds. */
static bool read_stat(const char *folder, uint64_t now[3])
{
    char path[2 * LTN_CGROUP_PATH_BYTES + 16];
    char text[1024];
    bool found = false;
    (void)snprintf(path, sizeof(path), "%s/cpu.stat", folder);
    if (ltn_file_read_head(path, text, sizeof(text)) <= 0) {
        return false;
    }
    now[0] = number_of(text, "nr_periods ", &found);
    now[1] = number_of(text, "nr_throttled ", &found);
    now[2] = number_of(text, "throttled_time ", &found) +
             number_of(text, "throttled_usec ", &found) * LTN_NS_PER_US;
    return found;
}

static const struct reading *read_folder(struct ltn_cgroups *c, const char *folder)
{
    struct reading *r = ltn_map_get_str(&c->readings, folder);
    if (r != NULL && r->window == c->window) {
        return r;
    }
    uint64_t now[3] = {0};
    if (!read_stat(folder, now)) {
        return NULL;
    }
    if (r == NULL) {
        r = calloc(1, sizeof(*r));
        if (r == NULL || ltn_map_put_str(&c->readings, folder, r) != 0) {
            free(r);
            return NULL;
        }
    } else {
        r->known = r->window + 1 == c->window;
        memcpy(r->before, r->now, sizeof(r->before));
    }
    memcpy(r->now, now, sizeof(r->now));
    r->window = c->window;
    return r;
}

/* Path of the process in the hierarchy that limits CPUs, and where that is mounted. */
static const char *cpu_path(const struct ltn_cgroups *c, uint32_t pid, char *out, size_t size)
{
    char file[64];
    char text[4096];
    const char *mount = NULL;
    (void)snprintf(file, sizeof(file), "/proc/%u/cgroup", pid);
    if (ltn_file_read_head(file, text, sizeof(text)) <= 0) {
        return NULL;
    }
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        names++;
        bool v1 = strcmp(names, "cpu") == 0 || strncmp(names, "cpu,", 4) == 0 ||
                  strstr(names, ",cpu,") != NULL ||
                  (strlen(names) > 4 && strcmp(names + strlen(names) - 4, ",cpu") == 0);
        bool use = v1 ? c->v1[0] != '\0' : names[0] == '\0' && mount == NULL && c->v1[0] == '\0';
        if (use && ltn_copy_str(out, size, path)) {
            mount = v1 ? c->v1 : c->v2;
        }
    }
    return mount != NULL && mount[0] != '\0' ? mount : NULL;
}

bool ltn_cgroups_throttle(struct ltn_cgroups *c, uint32_t pid, struct ltn_throttle *ret)
{
    char path[LTN_CGROUP_PATH_BYTES];
    char folder[2 * LTN_CGROUP_PATH_BYTES];
    uint64_t most = 0;
    const char *mount = cpu_path(c, pid, path, sizeof(path));
    for (int level = 0; mount != NULL && level < LEVELS_MAX; level++) {
        (void)snprintf(folder, sizeof(folder), "%s%s", mount, path);
        const struct reading *r = read_folder(c, folder);
        uint64_t held =
            r != NULL && r->known && r->now[2] > r->before[2] ? r->now[2] - r->before[2] : 0;
        if (held > most) {
            most = held;
            *ret = (struct ltn_throttle){.periods = r->now[0] - r->before[0],
                                         .throttled = r->now[1] - r->before[1],
                                         .throttled_ns = held,
                                         .throttled_total_ns = r->now[2]};
            ltn_text_clean(ret->path, sizeof(ret->path), path, strlen(path));
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) {
            break;
        }
        *slash = '\0';
    }
    return most > 0;
}
