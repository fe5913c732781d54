/* SPDX-License-Identifier: Apache-2.0 */
/* Which file an open descriptor leads to, also where several overlay mounts show the same one. */
#ifndef LTN_DISCOVER_FILE_ID_H
#define LTN_DISCOVER_FILE_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/attr.h"

/* One state of one file's content, as stat(2) tells it. Without padding: it may be a key. */
struct ltn_file_state {
    uint64_t dev;
    uint64_t ino;
    uint64_t size_bytes;
    uint64_t mtime_ns;
    uint64_t ctime_ns;
};

struct ltn_file_state ltn_file_state_of(const struct stat *st);

struct ltn_file_id {
    struct ltn_file_state state;
    bool overlay; /* seen through an overlay file system */
};

/* Looks at the open file. 0, -errno. Any thread. */
int ltn_file_id_of(int fd, struct ltn_file_id *ret_id) ltn_must_check;

/* Do both lead to the same file below? Device and inode say so. An overlay has a device number of
 * its own but shows the inode number and the times of the file below; no other file has the change
 * time to the nanosecond and the rest as well. Two copies on snapshots of one btrfs have all of
 * that and are two files for the kernel, hence the question is asked of overlays only. */
bool ltn_file_id_same(const struct ltn_file_id *a, const struct ltn_file_id *b);

#endif /* LTN_DISCOVER_FILE_ID_H */
