/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define SERVICE_DB "/var/lib/lanterne/lanterne.db"

int ltn_store_path(const struct ltn_agent_options *o, bool service, char *out, size_t size)
{
    struct ltn_invoker who;
    ltn_invoker_find(&who);
    int n;
    if (o->db[0] != '\0') {
        n = snprintf(out, size, "%s", o->db);
    } else if (service || who.home[0] == '\0') {
        n = snprintf(out, size, "%s", SERVICE_DB);
    } else {
        n = snprintf(out, size, "%s/.lanterne/lanterne.db", who.home);
    }
    return n < 0 || (size_t)n >= size ? LTN_ERR_TOO_LARGE : 0;
}

/* Makes the folder the database lies in, if it is not there; its parent must exist. */
static int make_folder(const char *path, const struct ltn_invoker *who, struct ltn_errinfo *info)
{
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof(dir), "%s", path);
    char *slash = n > 0 && (size_t)n < sizeof(dir) ? strrchr(dir, '/') : NULL;
    if (slash == NULL || slash == dir) {
        return 0;
    }
    *slash = '\0';
    if (mkdir(dir, 0750) == 0) {
        if (who->sudo && chown(dir, who->uid, who->gid) != 0) {
            ltn_log_warn("cannot give %s to user %u", dir, who->uid);
        }
        return 0;
    }
    int rc = -errno;
    if (rc == -EEXIST) {
        return 0;
    }
    return ltn_errinfo_set(info, rc,
                           "cannot make the folder %s: %s; choose another place with --db", dir,
                           ltn_err_str(rc));
}

static void say(void *ctx, const char *text)
{
    (void)ctx;
    ltn_log_info("%s", text);
}

int ltn_store_open(const struct ltn_agent_options *o, bool service,
                   const struct ltn_record_encoder *encoder, struct ltn_record **ret,
                   struct ltn_errinfo *info)
{
    char path[PATH_MAX];
    struct ltn_invoker who;
    ltn_invoker_find(&who);
    int rc = ltn_store_path(o, service, path, sizeof(path));
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "the path of the database is too long");
    }
    rc = make_folder(path, &who, info);
    if (rc < 0) {
        return rc;
    }
    const struct ltn_record_opts opts = {
        .path = path,
        .node = o->node,
        .max_bytes = o->max_db_bytes,
        .own = who.sudo,
        .uid = who.uid,
        .gid = who.gid,
        .record_calls = true,
        .waits = say,
        .encoder = encoder,
    };
    struct ltn_record *r = NULL;
    rc = ltn_record_open(&opts, &r, info);
    if (rc < 0) {
        return rc;
    }
    if (ltn_record_moved(r)[0] != '\0') {
        ltn_log_warn("the database was damaged; it was moved to %s and a new one begun",
                     ltn_record_moved(r));
    }
    rc = ltn_record_start(r);
    if (rc < 0) {
        ltn_record_close(r);
        return ltn_errinfo_set(info, rc, "cannot start a thread: %s", ltn_err_str(rc));
    }
    *ret = r;
    return 0;
}
