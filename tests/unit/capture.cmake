# SPDX-License-Identifier: Apache-2.0
foreach(topic cgroups steps rank_window procs)
    ltn_test(test_capture_${topic} test_capture_${topic}.c)
    target_link_libraries(test_capture_${topic} PRIVATE ltn_capture)
endforeach()
ltn_test(test_probe_ops test_probe_ops.c)
target_link_libraries(test_probe_ops PRIVATE ltn_ops)
ltn_test(test_engine_scope test_engine_scope.c)
target_link_libraries(test_engine_scope PRIVATE ltn_engine)
