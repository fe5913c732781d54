/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the page, as they were when the program was built. Constant; any thread. */
#ifndef LTN_WEB_WEB_H
#define LTN_WEB_WEB_H

#include <stddef.h>
#include <stdint.h>

struct ltn_web_asset {
    const char *path;         /* "/" or "/assets/NAME" */
    const char *content_type; /* with charset */
    const char *etag;         /* weak, from the hash of the file */
    const uint8_t *data;
    size_t len; /* bytes */
};

extern const struct ltn_web_asset ltn_web_assets[];
extern const size_t ltn_web_asset_count;

#endif /* LTN_WEB_WEB_H */
