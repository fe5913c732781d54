# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_mcp fuzz_mcp.c ltn_mcp)
target_include_directories(fuzz_mcp PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
