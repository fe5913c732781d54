/* SPDX-License-Identifier: Apache-2.0 */
/* Removes what a test left behind. */
#ifndef LTN_TESTS_DROP_TREE_H
#define LTN_TESTS_DROP_TREE_H

#include <ftw.h>
#include <stdio.h>

static int ltn_drop_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Removes the folder with everything below it, without following links or leaving its file system.
 * 0, or what nftw says. */
static int ltn_drop_tree(const char *path)
{
    return nftw(path, ltn_drop_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

#endif /* LTN_TESTS_DROP_TREE_H */
