# SPDX-License-Identifier: Apache-2.0
# Watches the Python frames of a test function, for test_python_frames.py.
add_library(python_tick SHARED python_tick.c)
target_compile_options(python_tick PRIVATE -O2 -Wall -Wextra -Werror)
target_link_libraries(python_tick PRIVATE Threads::Threads)
set_target_properties(python_tick PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
ltn_bpf_object(python_probe python_probe.bpf.c)
add_executable(python_frames python_frames.c)
target_include_directories(python_frames PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(python_frames PRIVATE ltn_flags ltn_python ltn_discover ltn_base python_probe_skel bpf)
add_dependencies(python_frames python_tick)
