# SPDX-License-Identifier: Apache-2.0
foreach(program http_echo http_call)
    add_executable(${program} ${program}.c)
    target_link_libraries(${program} PRIVATE ltn_flags ltn_http)
endforeach()
ltn_e2e_test(e2e_http_grpc test_http_grpc.py)
ltn_e2e_test(e2e_http_h1 test_http_h1.py)
ltn_e2e_test(e2e_http_h2_abuse test_http_h2_abuse.py)
ltn_e2e_test(e2e_http_client test_http_client.py)
