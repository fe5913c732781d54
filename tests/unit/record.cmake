# SPDX-License-Identifier: Apache-2.0
ltn_test(test_conf_sources test_conf_sources.c)
target_link_libraries(test_conf_sources PRIVATE ltn_conf)

foreach(topic checkpoint claim db failures query)
    ltn_test(test_sql_${topic} test_sql_${topic}.c)
    target_link_libraries(test_sql_${topic} PRIVATE ltn_sql)
endforeach()

ltn_test(test_record_hist test_record_hist.c)
target_link_libraries(test_record_hist PRIVATE ltn_record)
foreach(topic failures stacks store)
    ltn_test(test_record_${topic} test_record_${topic}.c record_sample.c)
    target_link_libraries(test_record_${topic} PRIVATE ltn_record ltn_window)
endforeach()

ltn_test(test_push_conf test_push_conf.c)
target_link_libraries(test_push_conf PRIVATE ltn_push ltn_http)
foreach(topic encode outage)
    ltn_test(test_push_${topic} test_push_${topic}.c record_sample.c)
    target_link_libraries(test_push_${topic} PRIVATE ltn_push ltn_otlp ltn_window)
endforeach()
target_compile_definitions(test_push_outage PRIVATE LTN_TEST_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
