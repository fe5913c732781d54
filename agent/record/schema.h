/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and views of the record. What they mean stands in docs/internals/record.md. */
#ifndef LTN_RECORD_SCHEMA_H
#define LTN_RECORD_SCHEMA_H

#include <stddef.h>

#include "sql/claim.h"

/* Migrations for ltn_db_migrate; only ever extended. */
extern const char *const ltn_record_migrations[];
extern const size_t ltn_record_migration_count;

/* The migration that adds what the host does. */
extern const char ltn_record_schema_host[];

/* PRAGMA application_id of our files: "LTNR". */
#define LTN_RECORD_APPLICATION_ID LTN_DB_NODE

/* The migration that brought stacks. */
extern const char ltn_record_schema_stacks[];

/* Temporary views that stand in for what it added when a reader finds a record from before. */
extern const char ltn_record_before_stacks[];

/* The same for what says how much of the machine the probes cover. */
extern const char ltn_record_before_coverage[];

/* The same for the price of tracing, in a record that has the coverage. */
extern const char ltn_record_before_price[];

/* The same for what launches of graphs issued anew. */
extern const char ltn_record_before_replays[];

/* Temporary views that a reader with our functions lays over the plain ones. */
extern const char ltn_record_reader_views[];

#endif /* LTN_RECORD_SCHEMA_H */
