/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of bodies, with libcrypto. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "alert/internal.h"

static void to_hex(const uint8_t *bytes, size_t n, char *out, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    size_t len = 2 * n < size - 1 ? 2 * n : size - 1;
    for (size_t i = 0; i < len; i++)
        out[i] = digits[i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15];
    out[len] = '\0';
}

int ltn_alert_digest(const void *data, size_t n, char *ret_hex, size_t hex_bytes)
{
    uint8_t md[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (EVP_Digest(data, n, md, &len, EVP_sha256(), NULL) != 1)
        return LTN_ERR_INTERNAL;
    to_hex(md, len, ret_hex, hex_bytes);
    return 0;
}

int ltn_alert_sign(const char *secret, uint64_t unix_s, const void *body, size_t n,
                   char ret_hex[LTN_ALERT_HEX_BYTES])
{
    uint8_t md[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    struct ltn_buf text;
    ltn_buf_init(&text, n + 64);
    (void)ltn_buf_printf(&text, "%llu.", (unsigned long long)unix_s);
    (void)ltn_buf_append(&text, body, n);
    int rc = ltn_buf_error(&text);
    if (rc == 0 && HMAC(EVP_sha256(), secret, (int)strlen(secret), (const uint8_t *)text.data,
                        text.len, md, &len) == NULL)
        rc = LTN_ERR_INTERNAL;
    ltn_buf_done(&text);
    if (rc == 0)
        to_hex(md, len, ret_hex, LTN_ALERT_HEX_BYTES);
    return rc;
}
