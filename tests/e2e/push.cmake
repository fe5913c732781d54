# SPDX-License-Identifier: Apache-2.0
add_executable(push_feed push_feed.c)
target_link_libraries(push_feed PRIVATE ltn_flags ltn_push ltn_otlp ltn_record ltn_window)
