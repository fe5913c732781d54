/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne version` */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "conf/command.h"
#include "discover/kernel.h"

static void put_json(const struct ltn_kernel_facts *k)
{
    struct ltn_buf out;
    struct ltn_json j;
    ltn_buf_init(&out, 4096);
    ltn_json_init(&j, &out);
    ltn_json_open_object(&j);
    ltn_json_kv_str(&j, "version", LTN_VERSION);
    ltn_json_kv_str(&j, "commit", LTN_COMMIT);
    ltn_json_kv_bool(&j, "btf", k->btf);
    ltn_json_kv_bool(&j, "uprobe_session", k->uprobe_session);
    ltn_json_kv_bool(&j, "uprobe_multi", k->uprobe_multi);
    ltn_json_kv_bool(&j, "uprobe_perf", k->uprobe_perf);
    ltn_json_kv_bool(&j, "raw_tracepoint", k->raw_tracepoint);
    ltn_json_close_object(&j);
    (void)puts(ltn_buf_str(&out));
    ltn_buf_done(&out);
}

int ltn_cmd_version(int argc, char **argv)
{
    static struct ltn_kernel_facts k;
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        bool help = strcmp(argv[1], "--help") == 0;
        (void)fputs("usage: lanterne version [--json]\n", help ? stdout : stderr);
        return help ? LTN_EXIT_OK : LTN_EXIT_USAGE;
    }
    ltn_kernel_probe(&k);
    if (json) {
        put_json(&k);
        return LTN_EXIT_OK;
    }
    (void)printf("lanterne %s (%s)\n", LTN_VERSION, LTN_COMMIT);
    (void)printf("kernel: BTF %s, uprobe links: session %s, multi %s, perf %s\n",
                 k.btf ? "yes" : "no", k.uprobe_session ? "yes" : "no",
                 k.uprobe_multi ? "yes" : "no", k.uprobe_perf ? "yes" : "no");
    return LTN_EXIT_OK;
}
