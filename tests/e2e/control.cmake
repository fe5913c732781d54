# SPDX-License-Identifier: Apache-2.0
add_executable(control_query control_query.c)
target_link_libraries(control_query PRIVATE ltn_flags ltn_cli)
