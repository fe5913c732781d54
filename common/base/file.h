/* SPDX-License-Identifier: Apache-2.0 */
/* Small files (procfs, sysfs, token files) read whole, with a ceiling. Thread-safe. */
#ifndef LTN_BASE_FILE_H
#define LTN_BASE_FILE_H

#include <stddef.h>

#include "base/attr.h"
#include "base/buf.h"

/* Appends the whole file to b. 0, -errno, LTN_ERR_UNSUPPORTED for a named pipe, which might never
 * end, or LTN_ERR_TOO_LARGE when it does not fit below the
 * buffer's ceiling. */
int ltn_file_read(const char *path, struct ltn_buf *b) ltn_must_check;

/* Reads at most size - 1 bytes into out and terminates them; returns the length or -errno. A
 * named pipe nobody writes to counts as empty. Longer
 * content is cut. */
long ltn_file_read_head(const char *path, char *out, size_t size) ltn_must_check;

/* Writes all n bytes to fd, going on after short writes and signals; 0 or -errno. */
int ltn_fd_write_all(int fd, const void *p, size_t n) ltn_must_check;

#endif /* LTN_BASE_FILE_H */
