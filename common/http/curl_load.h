/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl, loaded when the first client is made: with what it needs it takes 3 MiB, which a program
 * that never calls anybody over HTTP need not hold. Include this instead of curl/curl.h.
 */
#ifndef LTN_HTTP_CURL_LOAD_H
#define LTN_HTTP_CURL_LOAD_H

#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

#include "base/attr.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo

#define LTN_CURL_FUNCTIONS(X)                                                                      \
    X(curl_easy_cleanup)                                                                           \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_init)                                                                              \
    X(curl_easy_perform)                                                                           \
    X(curl_easy_reset)                                                                             \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_strerror)                                                                          \
    X(curl_global_init)                                                                            \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)

struct ltn_curl {
#define LTN_CURL_MEMBER(name) __typeof__(&(name)) name;
    LTN_CURL_FUNCTIONS(LTN_CURL_MEMBER)
#undef LTN_CURL_MEMBER
};

/* Filled by ltn_curl_load(). */
extern struct ltn_curl ltn_curl;

/* Loads the library and its functions, once. 0, or -ENOENT when it is not there or lacks one. Any
 * thread. */
int ltn_curl_load(void) ltn_must_check;

#ifndef LTN_CURL_LOADER
#define curl_easy_cleanup   ltn_curl.curl_easy_cleanup
#define curl_easy_getinfo   ltn_curl.curl_easy_getinfo
#define curl_easy_init      ltn_curl.curl_easy_init
#define curl_easy_perform   ltn_curl.curl_easy_perform
#define curl_easy_reset     ltn_curl.curl_easy_reset
#define curl_easy_setopt    ltn_curl.curl_easy_setopt
#define curl_easy_strerror  ltn_curl.curl_easy_strerror
#define curl_slist_append   ltn_curl.curl_slist_append
#define curl_slist_free_all ltn_curl.curl_slist_free_all
#endif

#endif /* LTN_HTTP_CURL_LOAD_H */
