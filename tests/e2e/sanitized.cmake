# SPDX-License-Identifier: Apache-2.0
# Whole programs that are run under the sanitizers too: label "sanitized".
ltn_e2e_test(e2e_outage test_outage.py)
ltn_e2e_test(e2e_collector_edges test_collector_edges.py)
set_tests_properties(e2e_outage e2e_collector_edges PROPERTIES LABELS "e2e;sanitized")
ltn_e2e_test(e2e_http_overload test_http_overload.py)
set_tests_properties(e2e_http_overload PROPERTIES LABELS "e2e;sanitized")
ltn_e2e_test(e2e_abuse test_abuse.py)
set_tests_properties(e2e_abuse PROPERTIES LABELS "e2e;sanitized")
set_property(TEST e2e_abuse APPEND PROPERTY ENVIRONMENT "LTN_SANITIZE=${LTN_SANITIZE}")
