# SPDX-License-Identifier: Apache-2.0
foreach(topic guard rows)
    ltn_test(test_serve_${topic} test_serve_${topic}.c)
    target_link_libraries(test_serve_${topic} PRIVATE ltn_node_api)
endforeach()

foreach(topic health host merge)
    ltn_test(test_cli_${topic} test_cli_${topic}.c)
    target_link_libraries(test_cli_${topic} PRIVATE ltn_cli)
endforeach()
