# SPDX-License-Identifier: Apache-2.0
# Loads kernel programs: not with the unit tests, which need no privilege. It ends threads behind the back of the C library,
# which sanitizers do not bear.
if(LTN_SANITIZE STREQUAL "")
    ltn_test(test_probe_left test_probe_left.c)
    target_link_libraries(test_probe_left PRIVATE ltn_probe ltn_discover ltn_ops ltn_base bpf Threads::Threads)
    set_tests_properties(test_probe_left PROPERTIES LABELS e2e RUN_SERIAL TRUE)
endif()
