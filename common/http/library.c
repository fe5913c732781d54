/* SPDX-License-Identifier: Apache-2.0 */
#include "http/library.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int end_session(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    (void)frame;
    (void)user;
    return nghttp2_session_terminate_session(ng, NGHTTP2_NO_ERROR);
}

/* A frame whose size is wrong, in the same bytes as the one that ended the session. */
static void feed_after_end(uint8_t type, uint8_t length)
{
    static const uint8_t settings[9] = {0, 0, 0, NGHTTP2_SETTINGS};
    const uint8_t bad[9 + 2] = {0, 0, length, type};
    uint8_t wire[NGHTTP2_CLIENT_MAGIC_LEN + 9 + 2 * sizeof(bad)];
    size_t n = NGHTTP2_CLIENT_MAGIC_LEN;
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_session *ng = NULL;
    memcpy(wire, NGHTTP2_CLIENT_MAGIC, n);
    memcpy(wire + n, settings, sizeof(settings));
    n += sizeof(settings);
    for (int i = 0; i < 2; i++) {
        memcpy(wire + n, bad, 9 + (size_t)length);
        n += 9 + (size_t)length;
    }
    if (nghttp2_session_callbacks_new(&cb) == 0) {
        nghttp2_session_callbacks_set_on_frame_recv_callback(cb, end_session);
        if (nghttp2_session_server_new(&ng, cb, NULL) == 0) {
            (void)nghttp2_session_mem_recv(ng, wire, n);
        }
    }
    nghttp2_session_del(ng);
    nghttp2_session_callbacks_del(cb);
}

static void frames_after_end(void)
{
    for (uint8_t type = NGHTTP2_DATA; type <= NGHTTP2_CONTINUATION; type++) {
        for (uint8_t length = 0; length <= 2; length++) {
            feed_after_end(type, length);
        }
    }
}

bool ltn_http_survives(void (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)close(STDERR_FILENO); /* an assertion would print */
        fn();
        _exit(0);
    }
    if (pid < 0) {
        return true;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return true;
        }
    }
    return !WIFSIGNALED(status);
}

int ltn_http_library_check(struct ltn_errinfo *info)
{
    if (nghttp2_version(NGHTTP2_VERSION_NUM) == NULL) {
        return ltn_errinfo_set(info, LTN_ERR_UNSUPPORTED,
                               "libnghttp2 %s is older than the one this program was built with",
                               nghttp2_version(0)->version_str);
    }
    if (!ltn_http_survives(frames_after_end)) {
        return ltn_errinfo_set(info, LTN_ERR_UNSUPPORTED,
                               "libnghttp2 %s can be brought down from outside (CVE-2026-27135): "
                               "install a version with the fix",
                               nghttp2_version(0)->version_str);
    }
    return 0;
}
