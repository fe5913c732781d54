/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LTN_SQL_CHECKPOINT_H
#define LTN_SQL_CHECKPOINT_H

#include "base/attr.h"
#include "sql/db.h"

struct ltn_db_checkpointer;

/* From now on the commits of db do not make checkpoints, a thread with a connection of its own
 * does, as often (each 1000 pages of the log). Only when the log passes 64 MiB, because commits
 * came without a pause, one of them makes what is left of it. NULL when that cannot be had (also
 * for a database in memory): all stays as it was. On the thread of db; nothing of db is used by the
 * other thread. */
struct ltn_db_checkpointer *ltn_db_checkpointer_new(struct ltn_db *db) ltn_must_check;

/* Before db is closed, on its thread. Waits for a checkpoint that goes on. NULL is ignored. */
void ltn_db_checkpointer_free(struct ltn_db_checkpointer *c, struct ltn_db *db);

#endif /* LTN_SQL_CHECKPOINT_H */
