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
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    capture_program(capture_throw capture_throw.cpp)
    target_link_libraries(capture_throw PRIVATE simgpu_cudart simgpu_cuda)
endif()
