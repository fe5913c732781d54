/* SPDX-License-Identifier: Apache-2.0 */
#define LTN_CURL_LOADER
#include "http/curl_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

struct ltn_curl ltn_curl;
static int load_rc = -ENOENT;

static void load(void)
{
    void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (lib == NULL) {
        return;
    }
    /* A function pointer out of a data pointer: by way of memory, as POSIX has it. */
#define LTN_CURL_FIND(name)                                                                        \
    {                                                                                              \
        void *found = dlsym(lib, #name);                                                           \
        if (found == NULL) {                                                                       \
            return;                                                                                \
        }                                                                                          \
        memcpy(&ltn_curl.name, &found, sizeof(found));                                             \
    }
    LTN_CURL_FUNCTIONS(LTN_CURL_FIND)
#undef LTN_CURL_FIND
    if (ltn_curl.curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        load_rc = 0;
    }
}

int ltn_curl_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    return load_rc;
}
