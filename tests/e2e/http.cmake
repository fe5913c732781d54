# SPDX-License-Identifier: Apache-2.0
add_executable(http_echo http_echo.c)
target_link_libraries(http_echo PRIVATE ltn_flags ltn_http)
