# SPDX-License-Identifier: Apache-2.0
# Traced programs for test_stacks.py, with frame pointers.
set(STACKS_FLAGS -fno-omit-frame-pointer -fno-optimize-sibling-calls)
capture_program(stacks_target stacks_target.c)
target_compile_options(stacks_target PRIVATE ${STACKS_FLAGS})
target_link_libraries(stacks_target PRIVATE simgpu_cudart simgpu_cuda)
if(CMAKE_CXX_COMPILER)
    capture_program(stacks_names stacks_names.cpp)
    target_compile_options(stacks_names PRIVATE ${STACKS_FLAGS})
    target_link_libraries(stacks_names PRIVATE simgpu_cudart simgpu_cuda)
endif()
