/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/file_id.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "base/attr.h"

static uint64_t ns_of(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * LTN_NS_PER_S + (uint64_t)t->tv_nsec;
}

struct ltn_file_state ltn_file_state_of(const struct stat *st)
{
    return (struct ltn_file_state){.dev = st->st_dev,
                                   .ino = st->st_ino,
                                   .size_bytes = (uint64_t)st->st_size,
                                   .mtime_ns = ns_of(&st->st_mtim),
                                   .ctime_ns = ns_of(&st->st_ctim)};
}

int ltn_file_id_of(int fd, struct ltn_file_id *ret_id)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0) {
        return -errno;
    }
    *ret_id = (struct ltn_file_id){
        .state = ltn_file_state_of(&st),
        .overlay = fs.f_type == OVERLAYFS_SUPER_MAGIC,
    };
    return 0;
}

bool ltn_file_id_same(const struct ltn_file_id *a, const struct ltn_file_id *b)
{
    const struct ltn_file_state *x = &a->state;
    const struct ltn_file_state *y = &b->state;
    if (x->dev == y->dev && x->ino == y->ino) {
        return true;
    }
    return a->overlay && b->overlay && x->ino == y->ino && x->size_bytes == y->size_bytes &&
           x->mtime_ns == y->mtime_ns && x->ctime_ns == y->ctime_ns;
}
