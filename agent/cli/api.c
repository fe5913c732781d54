/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/api.h"

#include <string.h>

#include "base/log.h"

int ltn_api_start(const struct ltn_agent_options *o, const char *by_default, const char *db_path,
                  struct ltn_serve **ret, struct ltn_errinfo *info)
{
    const char *listen = strcmp(o->listen, "auto") == 0 ? by_default : o->listen;
    *ret = NULL;
    if (listen == NULL || listen[0] == '\0' || strcmp(listen, "off") == 0) {
        return 0;
    }
    const struct ltn_serve_opts opts = {.listen = listen,
                                        .token_file = o->api_token_file,
                                        .cert_file = o->api_cert_file,
                                        .key_file = o->api_key_file,
                                        .db_path = db_path,
                                        .node = o->node};
    int rc = ltn_serve_start(&opts, ret, info);
    if (rc < 0 && rc != LTN_ERR_CONFIG) {
        ltn_log_warn("no local API: %s; choose another address with --listen", info->msg);
        return 0;
    }
    if (rc == 0) {
        ltn_log_info("local API on %s, port %u", listen, (unsigned)ltn_serve_port(*ret));
    }
    return rc;
}
