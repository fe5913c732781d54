# SPDX-License-Identifier: Apache-2.0
foreach(topic core fronts)
    ltn_test(test_mcp_${topic} test_mcp_${topic}.c)
    target_link_libraries(test_mcp_${topic} PRIVATE ltn_mcp)
endforeach()
