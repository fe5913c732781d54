/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/scope.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"

/* Where the cgroup v2 hierarchy is mounted. */
static bool find_mount(char *out, size_t size)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    if (f == NULL) {
        return false;
    }
    char line[PATH_MAX + 512];
    struct mntent entry;
    bool found = false;
    while (!found && getmntent_r(f, &entry, line, sizeof(line)) != NULL) {
        found = strcmp(entry.mnt_type, "cgroup2") == 0 && ltn_copy_str(out, size, entry.mnt_dir);
    }
    (void)endmntent(f);
    return found;
}

/* Copies a path without doubled and trailing slashes; returns its depth. */
static uint32_t normalise(const char *path, char *out, size_t size)
{
    uint32_t level = 0;
    size_t n = 0;
    while (*path != '\0' && n + 2 < size) {
        if (*path == '/') {
            path++;
            continue;
        }
        size_t len = strcspn(path, "/");
        if (n + 1 + len >= size) {
            break;
        }
        out[n++] = '/';
        memcpy(out + n, path, len);
        n += len;
        path += len;
        level++;
    }
    if (n == 0) {
        out[n++] = '/';
    }
    out[n] = '\0';
    return level;
}

static bool climbs(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")) != NULL; p++) {
        bool begins = p == path || p[-1] == '/';
        if (begins && (p[2] == '/' || p[2] == '\0')) {
            return true;
        }
    }
    return false;
}

int ltn_cgroup_resolve(const char *name, struct ltn_cgroup_ref *ret, struct ltn_errinfo *info)
{
    char mount[PATH_MAX];
    if (!find_mount(mount, sizeof(mount))) {
        return ltn_errinfo_set(
            info, LTN_ERR_UNSUPPORTED,
            "no cgroup v2 hierarchy is mounted; mount one or leave --cgroup out");
    }
    size_t n = strlen(mount);
    const char *below =
        strncmp(name, mount, n) == 0 && (name[n] == '/' || name[n] == '\0') ? name + n : name;
    struct ltn_cgroup_ref ref = {0};
    if (climbs(below)) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "--cgroup: a path below the cgroup mount, without \"..\"");
    }
    if (strlen(below) + 2 >= sizeof(ref.path)) {
        return ltn_errinfo_set(info, LTN_ERR_TOO_LARGE, "the cgroup path is too long");
    }
    ref.level = normalise(below, ref.path, sizeof(ref.path));
    char dir[PATH_MAX + LTN_PROC_CGROUP_BYTES];
    (void)snprintf(dir, sizeof(dir), "%s%s", mount, ref.path);
    struct stat st;
    if (stat(dir, &st) != 0) {
        int rc = -errno;
        return ltn_errinfo_set(info, rc, "cgroup %s: %s", dir, ltn_err_str(rc));
    }
    ref.id = st.st_ino;
    *ret = ref;
    return 0;
}
