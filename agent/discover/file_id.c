/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/file_id.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/attr.h"

static uint64_t ns_of(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * LTN_NS_PER_S + (uint64_t)t->tv_nsec;
}

int ltn_file_id_of(int fd, struct ltn_file_id *ret_id)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0) {
        return -errno;
    }
    *ret_id = (struct ltn_file_id){
        .dev = st.st_dev,
        .ino = st.st_ino,
        .size_bytes = (uint64_t)st.st_size,
        .mtime_ns = ns_of(&st.st_mtim),
        .ctime_ns = ns_of(&st.st_ctim),
        .overlay = fs.f_type == OVERLAYFS_SUPER_MAGIC,
    };
    return 0;
}

bool ltn_file_id_same(const struct ltn_file_id *a, const struct ltn_file_id *b)
{
    if (a->dev == b->dev && a->ino == b->ino) {
        return true;
    }
    return a->overlay && b->overlay && a->ino == b->ino && a->size_bytes == b->size_bytes &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}
