# SPDX-License-Identifier: Apache-2.0
foreach(topic codes find layout line text)
    ltn_test(test_python_${topic} test_python_${topic}.c)
    target_link_libraries(test_python_${topic} PRIVATE ltn_python ltn_discover ltn_base)
endforeach()
