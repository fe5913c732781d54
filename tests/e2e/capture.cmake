# SPDX-License-Identifier: Apache-2.0
# Traced programs for test_capture_*.py; like simgpu they carry no sanitizer.
set(CAPTURE_SIM ${CMAKE_SOURCE_DIR}/tests/simgpu)

function(capture_program name file)
    add_executable(${name} ${file})
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_compile_options(${name} PRIVATE -O2 -g -Wall -Wextra -Wshadow -Wvla -Werror)
    target_include_directories(${name} PRIVATE ${CAPTURE_SIM})
    target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../simgpu")
endfunction()

capture_program(capture_target capture_target.c)
target_link_libraries(capture_target PRIVATE simgpu_cudart simgpu_nccl simgpu_cuda)
capture_program(capture_late capture_late.c)
capture_program(capture_driver capture_driver.c)

# The runtime linked in, with symbols and stripped; once more with the real one where a toolkit is installed.
function(capture_static name)
    capture_program(${name} capture_static.c)
    target_link_libraries(${name} PRIVATE ${ARGN})
    target_link_options(${name} PRIVATE -Wl,--build-id)
    add_custom_command(TARGET ${name} POST_BUILD
        COMMAND ${CMAKE_STRIP} -s -o $<TARGET_FILE:${name}>_stripped $<TARGET_FILE:${name}> VERBATIM)
endfunction()
capture_static(capture_static simgpu_cudart_static)
find_library(LTN_REAL_CUDART_STATIC libcudart_static.a NO_DEFAULT_PATH
    PATHS /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib /usr/local/cuda/targets/sbsa-linux/lib)
if(LTN_REAL_CUDART_STATIC)
    capture_static(capture_static_real ${LTN_REAL_CUDART_STATIC} rt)
    target_compile_definitions(capture_static_real PRIVATE REAL_RUNTIME)
endif()

add_library(capture_cudart SHARED capture_cudart.c)
target_compile_options(capture_cudart PRIVATE -O2 -g -fexceptions -fno-omit-frame-pointer -fno-optimize-sibling-calls
    -fvisibility=hidden -Wall -Wextra -Werror)
set_target_properties(capture_cudart PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
capture_program(capture_leave capture_leave.c)
target_link_libraries(capture_leave PRIVATE capture_cudart)
target_compile_options(capture_leave PRIVATE -fexceptions)
set_target_properties(capture_leave PROPERTIES INSTALL_RPATH "$ORIGIN")
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    capture_program(capture_throw capture_throw.cpp)
    target_link_libraries(capture_throw PRIVATE simgpu_cudart simgpu_cuda)
endif()

# Every function of ops.def by its name, so that the library may be any that has it.
capture_program(capture_ops capture_ops.c)
target_sources(capture_ops PRIVATE capture_ops_runtime.c capture_ops_driver.c capture_ops_nccl.c)
add_library(capture_future SHARED capture_future.c)
target_compile_options(capture_future PRIVATE -O2 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls
    -fvisibility=hidden -Wall -Wextra -Werror)
set_target_properties(capture_future PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})

capture_program(capture_graph capture_graph.c)
target_link_libraries(capture_graph PRIVATE simgpu_cudart simgpu_nccl simgpu_cuda)
