/* SPDX-License-Identifier: Apache-2.0 */
/* What a sender whose token is bound to one cluster may say. */
#include "access/scope.h"
#include "base/err.h"
#include "fleet/fleet.h"
#include "ingest/internal.h"

void ltn_decoder_confine(struct ltn_decoder *d, const char *cluster)
{
    d->only_cluster = cluster;
}

int ltn_decode_check_cluster(const struct ltn_decoder *d, struct ltn_otlp_attrs resource)
{
    static const char *const keys[] = {"lanterne.cluster", "k8s.cluster.name"};
    if (d->only_cluster == NULL)
        return 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(keys); i++) {
        struct ltn_otlp_str named;
        if (ltn_otlp_get_str(resource, keys[i], &named) && named.n > 0 &&
            !ltn_otlp_str_eq(named, d->only_cluster))
            return LTN_ERR_FORBIDDEN;
    }
    return 0;
}

int ltn_confine_nodes(const struct ltn_fleet *f, const struct ltn_update *u, const char *cluster)
{
    for (const struct ltn_update_resource *r = u->resources; cluster != NULL && r != NULL;
         r = r->next) {
        const struct ltn_fleet_node *n = ltn_map_get_str(&f->nodes, r->node);
        if (n != NULL && !ltn_scope_allows(cluster, n->cluster))
            return LTN_ERR_FORBIDDEN;
    }
    return 0;
}
