# SPDX-License-Identifier: Apache-2.0
foreach(topic host calls hang)
    ltn_test(test_causal_${topic} test_causal_${topic}.c)
    target_link_libraries(test_causal_${topic} PRIVATE ltn_causal)
endforeach()
ltn_test(test_capture_host_state test_capture_host_state.c)
target_link_libraries(test_capture_host_state PRIVATE ltn_capture)
