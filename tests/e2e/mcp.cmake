# SPDX-License-Identifier: Apache-2.0
# Writes a record with known content: two ranks, some windows, some calls.
add_executable(mcp_sample_db mcp_sample_db.c ${CMAKE_SOURCE_DIR}/tests/unit/record_sample.c)
target_include_directories(mcp_sample_db PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
target_link_libraries(mcp_sample_db PRIVATE ltn_flags ltn_record ltn_window)
