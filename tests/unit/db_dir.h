/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of each test's own, and where its database is: make_dir and drop_dir are set-up and
 * teardown. */
#ifndef LTN_TEST_DB_DIR_H
#define LTN_TEST_DB_DIR_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "drop_tree.h"

static char dir[32];
static char path[64];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-db-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/r.db", dir);
    return 0;
}

/* A test may have mounted a small disk there. */
static int drop_dir(void **state)
{
    (void)state;
    (void)umount2(dir, MNT_DETACH);
    return ltn_drop_tree(dir);
}

#endif /* LTN_TEST_DB_DIR_H */
