# SPDX-License-Identifier: Apache-2.0
foreach(topic guard rows)
    ltn_test(test_serve_${topic} test_serve_${topic}.c)
    target_link_libraries(test_serve_${topic} PRIVATE ltn_node_api)
endforeach()

ltn_test(test_cli_merge test_cli_merge.c)
target_link_libraries(test_cli_merge PRIVATE ltn_cli)
