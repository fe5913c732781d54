/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the HTTP/2 library that was loaded may face strangers. Its version says too little:
 * distributions mend old versions.
 */
#ifndef LTN_HTTP_LIBRARY_H
#define LTN_HTTP_LIBRARY_H

#include <stdbool.h>

#include "base/attr.h"
#include "base/err.h"

/* Tries, in a child process, what brings libraries without the fix of CVE-2026-27135 down. 0;
 * LTN_ERR_UNSUPPORTED with the reason in *info (may be NULL): a server must not be started. 0 also
 * when there can be no child. To be called while the process has one thread. */
int ltn_http_library_check(struct ltn_errinfo *info) ltn_must_check;

/* Runs fn in a child; false only when it ended by a signal. For the above and its test. */
bool ltn_http_survives(void (*fn)(void));

#endif /* LTN_HTTP_LIBRARY_H */
