/* SPDX-License-Identifier: Apache-2.0 */
/* Reason phrases of HTTP statuses. Used inside the room. */
#ifndef LTN_HTTP_REASON_H
#define LTN_HTTP_REASON_H

/* Static text; "Status" for what is not in the table. Thread-safe. */
const char *ltn_http_reason(int status);

#endif /* LTN_HTTP_REASON_H */
