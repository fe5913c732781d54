/* SPDX-License-Identifier: Apache-2.0 */
/* The table of alerts: what is due for whom, ends, changed labels, ceilings. No thread, no target.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"

#include "alert/internal.h"

#define T0 (1700000000ULL * LTN_NS_PER_S)
#define S  LTN_NS_PER_S

static void begin(struct ltn_alerts *a, size_t max)
{
    *a = (struct ltn_alerts){.target_count = 2, .resend_ns = 30 * S, .external_url = strdup("")};
    a->targets[0] = (struct ltn_alert_target){.owner = a, .kind = LTN_ALERT_ALERTMANAGER};
    a->targets[1] = (struct ltn_alert_target){.owner = a, .index = 1, .kind = LTN_ALERT_WEBHOOK};
    assert_int_equal(pthread_mutex_init(&a->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&a->wake, NULL), 0);
    ltn_map_init(&a->table, max);
}

static struct ltn_straggler_verdict verdict(const char *key, const char *cause)
{
    struct ltn_straggler_verdict v = {
        .job = "j", .node = "n", .tier = "ebpf", .since_ns = T0, .opened_at_ns = T0};
    (void)strncpy(v.key, key, sizeof(v.key) - 1);
    (void)strncpy(v.cause, cause, sizeof(v.cause) - 1);
    return v;
}

static void say(struct ltn_alerts *a, enum ltn_straggler_change change, const char *key,
                const char *cause, uint64_t now)
{
    struct ltn_straggler_verdict v = verdict(key, cause);
    if (change == LTN_VERDICT_CLOSED)
        v.closed_at_ns = now;
    ltn_alerts_verdict(a, change, &v, now);
}

static bool due(struct ltn_alerts *a, size_t target, struct ltn_alert *e, uint64_t mono)
{
    uint64_t at;
    return ltn_alert_due(a, &a->targets[target], e, mono, &at);
}

/* What a target's thread does after a 2xx. */
static void deliver(struct ltn_alerts *a, size_t target, struct ltn_alert *e, uint64_t mono)
{
    e->sent[target].version = e->version;
    e->sent[target].mono_ns = mono;
    e->sent[target].attempted = true;
    ltn_alert_drop_if_done(a, e);
}

static struct ltn_alert *firing(struct ltn_alerts *a, const char *key)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "v\x1fj\x1f%s", key);
    return ltn_alert_firing(a, text);
}

static void test_due(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    begin(a, 10);
    say(a, LTN_VERDICT_OPENED, "3", "x", T0);
    struct ltn_alert *e = firing(a, "3");
    assert_non_null(e);
    assert_true(due(a, 0, e, 100 * S) && due(a, 1, e, 100 * S));
    deliver(a, 0, e, 100 * S);
    deliver(a, 1, e, 100 * S);
    assert_false(due(a, 0, e, 129 * S));
    assert_true(due(a, 0, e, 130 * S));            /* Alertmanagers are told again */
    assert_false(due(a, 1, e, 99999 * S));         /* webhooks are not */
    say(a, LTN_VERDICT_UPDATED, "3", "x", T0 + S); /* the same content is no news */
    assert_false(due(a, 1, e, 131 * S));
    say(a, LTN_VERDICT_CLOSED, "3", "x", T0 + 9 * S);
    assert_null(firing(a, "3"));
    assert_true(e->ends_ns == T0 + 9 * S);
    assert_true(due(a, 0, e, 131 * S) && due(a, 1, e, 131 * S));
    deliver(a, 0, e, 131 * S);
    assert_int_equal(a->table.len, 1);
    deliver(a, 1, e, 131 * S);
    assert_int_equal(a->table.len, 0);
    ltn_alerts_free(a);
}

static void test_end_nobody_heard_the_beginning_of(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    begin(a, 10);
    say(a, LTN_VERDICT_OPENED, "3", "x", T0);
    struct ltn_alert *e = firing(a, "3");
    e->sent[1].attempted = true; /* no answer: it may have arrived */
    say(a, LTN_VERDICT_CLOSED, "3", "x", T0 + S);
    assert_false(due(a, 0, e, S));
    assert_true(due(a, 1, e, S));
    ltn_alerts_free(a);
}

static void test_an_end_is_after_its_beginning(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    begin(a, 10);
    say(a, LTN_VERDICT_OPENED, "3", "x", T0);
    struct ltn_alert *e = firing(a, "3");
    ltn_alert_resolve(a, e, T0 - 5 * S, T0 + S);
    assert_true(e->ends_ns > e->c.starts_ns && e->ends_ns <= T0 + S);
    ltn_alerts_free(a);
}

static void test_another_cause_is_another_alert(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    begin(a, 10);
    say(a, LTN_VERDICT_OPENED, "3", "unknown", T0);
    struct ltn_alert *old = firing(a, "3");
    deliver(a, 0, old, S);
    deliver(a, 1, old, S);
    say(a, LTN_VERDICT_UPDATED, "3", "cpu_contention", T0 + S);
    struct ltn_alert *e = firing(a, "3");
    assert_true(e != old && e->ends_ns == 0 && old->ends_ns != 0);
    assert_string_not_equal(e->fingerprint, old->fingerprint);
    assert_true(due(a, 0, old, 2 * S) && due(a, 1, old, 2 * S) && due(a, 0, e, 2 * S));
    say(a, LTN_VERDICT_UPDATED, "3", "unknown", T0 + 2 * S); /* and back, while both ends wait */
    say(a, LTN_VERDICT_UPDATED, "3", "cpu_contention", T0 + 3 * S);
    say(a, LTN_VERDICT_CLOSED, "3", "cpu_contention", T0 + 4 * S);
    assert_null(firing(a, "3"));
    ltn_alerts_free(a);
}

static void test_changed_while_under_way(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    begin(a, 1); /* no room to set the old one aside and keep both */
    say(a, LTN_VERDICT_OPENED, "3", "one", T0);
    struct ltn_alert *e = firing(a, "3");
    e->busy = 1;
    e->sent[0].attempted = true;
    say(a, LTN_VERDICT_UPDATED, "3", "two", T0 + S);
    say(a, LTN_VERDICT_UPDATED, "3", "three", T0 + 2 * S);
    assert_true(a->table.len <= 1);
    e->busy = 0; /* the memory was still there */
    ltn_alert_drop_if_done(a, e);
    ltn_alerts_free(a);
}

static void test_ceiling(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    begin(a, 2);
    say(a, LTN_VERDICT_OPENED, "1", "x", T0);
    say(a, LTN_VERDICT_OPENED, "2", "x", T0);
    say(a, LTN_VERDICT_OPENED, "3", "x", T0);
    assert_null(firing(a, "3"));
    assert_int_equal(a->stats.refused, 1);
    deliver(a, 0, firing(a, "1"), S);
    say(a, LTN_VERDICT_CLOSED, "1", "x", T0 + S); /* an end needs no room, and makes some */
    say(a, LTN_VERDICT_OPENED, "3", "x", T0 + 2 * S);
    assert_non_null(firing(a, "3"));
    assert_int_equal(a->stats.evicted, 1);
    ltn_alerts_free(a);
}

static void test_sync_ends_what_has_no_reason(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    struct ltn_fleet_opts o;
    struct ltn_fleet_sink sink = {0};
    ltn_fleet_opts_default(&o);
    struct ltn_fleet *f = ltn_fleet_new(&o, &sink);
    assert_non_null(f);
    begin(a, 10);
    a->min_severity = 17;
    struct ltn_straggler_verdict open = verdict("3", "x"), closed = verdict("4", "x");
    closed.closed_at_ns = T0 + 10 * S;
    assert_int_equal(ltn_fleet_restore_verdict(f, &open, T0 + 20 * S), 0);
    assert_int_equal(ltn_fleet_restore_verdict(f, &closed, T0 + 20 * S), 0);
    struct ltn_update_incident i = {.node = "n",
                                    .id = "i1",
                                    .kind = "oom",
                                    .state = "open",
                                    .title = "t",
                                    .severity = "HIGH",
                                    .cause = "",
                                    .evidence = "",
                                    .job = "",
                                    .rank = -1,
                                    .time_ns = T0,
                                    .severity_number = 17,
                                    .explained_share = -1};
    ltn_fleet_take_incident(f, &i);
    i.id = "i2";
    i.severity_number = 13;
    ltn_fleet_take_incident(f, &i);
    ltn_alerts_sync(a, f, T0 + 20 * S);
    /* The open one, the end that may not have been told, the severe incident. */
    assert_int_equal(a->table.len, 3);
    assert_true(firing(a, "3")->earlier);
    assert_null(firing(a, "4"));
    struct ltn_alert *incident = ltn_alert_firing(a, "i\x1fn\x1fi1");
    assert_non_null(incident);
    deliver(a, 0, incident, S);
    deliver(a, 1, incident, S);
    i.id = "i1";
    i.severity_number = 17;
    i.state = "closed";
    i.time_ns = T0 + 30 * S;
    ltn_fleet_take_incident(f, &i);
    ltn_alerts_sync(a, f, T0 + 31 * S);
    assert_true(incident->ends_ns != 0 && due(a, 0, incident, 2 * S));
    deliver(a, 0, incident, 2 * S);
    deliver(a, 1, incident, 2 * S);
    ltn_alerts_sync(a, f, T0 + 40 * S); /* over and told: not made anew */
    assert_null(ltn_alert_firing(a, "i\x1fn\x1fi1"));
    ltn_alerts_sync(a, f, T0 + 400 * S);
    assert_null(ltn_map_get_str(&a->table, "i\x1fn\x1fi1"));
    assert_non_null(firing(a, "3"));
    ltn_alerts_free(a);
    ltn_fleet_free(f);
}

static void test_short_incident_fires_for_a_while(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    struct ltn_fleet_opts o;
    struct ltn_fleet_sink sink = {0};
    ltn_fleet_opts_default(&o);
    struct ltn_fleet *f = ltn_fleet_new(&o, &sink);
    assert_non_null(f);
    begin(a, 10);
    struct ltn_update_incident i = {.node = "n",
                                    .id = "i1",
                                    .kind = "oom",
                                    .state = "closed",
                                    .title = "t",
                                    .severity = "HIGH",
                                    .cause = "",
                                    .evidence = "",
                                    .job = "",
                                    .rank = -1,
                                    .time_ns = T0,
                                    .severity_number = 17,
                                    .explained_share = -1};
    ltn_fleet_take_incident(f, &i);
    unsigned fired = 0;
    for (uint64_t now = T0 + S; now < T0 + 600 * S; now += S) {
        ltn_alerts_sync(a, f, now);
        struct ltn_alert *e = ltn_alert_firing(a, "i\x1fn\x1fi1");
        fired += e != NULL ? 1 : 0;
        e = e != NULL ? e : ltn_map_get_str(&a->table, "i\x1fn\x1fi1");
        for (size_t t = 0; e != NULL && t < 2; t++)
            e->sent[t] = (struct ltn_alert_sent){.version = e->version, .attempted = true};
    }
    assert_int_equal(fired, 60);
    assert_int_equal(a->table.len, 0);
    ltn_alerts_free(a);
    ltn_fleet_free(f);
}

static void test_silent_nodes(void **state)
{
    (void)state;
    struct ltn_alerts *a = malloc(sizeof(*a));
    struct ltn_fleet_opts o;
    struct ltn_fleet_sink sink = {0};
    ltn_fleet_opts_default(&o);
    o.window_ns = 10 * S;
    struct ltn_fleet *f = ltn_fleet_new(&o, &sink);
    assert_non_null(f);
    struct ltn_update_resource node = {
        .node = "n", .cluster = "", .instance = "i", .version = "1", .end_ns = T0};
    struct ltn_update u = {.resources = &node, .resource_count = 1, .received_ns = T0};
    ltn_fleet_apply(f, &u, T0);
    begin(a, 10);
    a->silent_after_ns = S; /* shorter than the agents' windows make sense of */
    ltn_alerts_sync(a, f, T0 + 29 * S);
    assert_int_equal(a->table.len, 0);
    ltn_alerts_sync(a, f, T0 + 30 * S);
    struct ltn_alert *e = ltn_alert_firing(a, "n\x1fn\x1f");
    assert_non_null(e);
    deliver(a, 0, e, S);
    deliver(a, 1, e, S);
    ltn_alerts_sync(a, f, T0 + 100 * S);
    assert_false(due(a, 1, e, 2 * S)); /* going on is no news */
    node.end_ns = T0 + 110 * S;
    ltn_fleet_apply(f, &u, T0 + 110 * S);
    ltn_alerts_sync(a, f, T0 + 111 * S);
    assert_null(ltn_alert_firing(a, "n\x1fn\x1f"));
    ltn_alerts_sync(a, f, T0 + 200 * S);
    assert_non_null(ltn_alert_firing(a, "n\x1fn\x1f"));
    ltn_alerts_sync(a, f, T0 + 90000 * S); /* a day later it is taken for removed */
    assert_null(ltn_alert_firing(a, "n\x1fn\x1f"));
    ltn_alerts_free(a);
    ltn_fleet_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_due),
        cmocka_unit_test(test_end_nobody_heard_the_beginning_of),
        cmocka_unit_test(test_an_end_is_after_its_beginning),
        cmocka_unit_test(test_another_cause_is_another_alert),
        cmocka_unit_test(test_changed_while_under_way),
        cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_sync_ends_what_has_no_reason),
        cmocka_unit_test(test_short_incident_fires_for_a_while),
        cmocka_unit_test(test_silent_nodes),
    };
    return LTN_RUN_TESTS(tests);
}
