# SPDX-License-Identifier: Apache-2.0
ltn_test(test_http_grpc test_http_grpc.c)
target_link_libraries(test_http_grpc PRIVATE ltn_http)
ltn_test(test_http_rate test_http_rate.c)
target_link_libraries(test_http_rate PRIVATE ltn_http)
ltn_test(test_http_session test_http_session.c)
target_link_libraries(test_http_session PRIVATE ltn_http)
ltn_test(test_io_loop test_io_loop.c)
target_link_libraries(test_io_loop PRIVATE ltn_io)
