# SPDX-License-Identifier: Apache-2.0
if(TARGET ltn_alert)
    foreach(topic content table)
        ltn_test(test_alert_${topic} test_alert_${topic}.c)
        target_link_libraries(test_alert_${topic} PRIVATE ltn_alert)
    endforeach()
endif()
