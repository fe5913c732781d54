/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "sql/internal.h"

int ltn_sql_error(int engine_rc)
{
    switch (engine_rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
        return engine_rc == SQLITE_IOERR_NOMEM ? -ENOMEM : LTN_ERR_DISK;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return LTN_ERR_CORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return LTN_ERR_BUSY;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_CANTOPEN:
        return LTN_ERR_NOT_FOUND;
    case SQLITE_TOOBIG:
        return LTN_ERR_TOO_LARGE;
    case SQLITE_INTERRUPT:
        return LTN_ERR_TIMEOUT;
    case SQLITE_AUTH:
    case SQLITE_PERM:
        return LTN_ERR_FORBIDDEN;
    case SQLITE_CONSTRAINT:
        return -EEXIST;
    case SQLITE_ERROR:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
    case SQLITE_SCHEMA:
        return LTN_ERR_MALFORMED;
    default:
        return LTN_ERR_INTERNAL;
    }
}
