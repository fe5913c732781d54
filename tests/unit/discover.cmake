# SPDX-License-Identifier: Apache-2.0
# Programs and libraries to be discovered. They are traced programs, so they carry none of our flags.
function(ltn_fixture_lib name file)
    cmake_parse_arguments(F "" "" "SOURCES;DEFINES;LINK" ${ARGN})
    add_library(${name} MODULE ${F_SOURCES})
    target_compile_definitions(${name} PRIVATE ${F_DEFINES})
    target_compile_options(${name} PRIVATE -fcf-protection=none -fno-omit-frame-pointer -O0)
    target_link_options(${name} PRIVATE -Wl,--build-id ${F_LINK})
    set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX ""
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/discover)
endfunction()
set(fixtures ${CMAKE_CURRENT_BINARY_DIR}/discover)
ltn_fixture_lib(fixture_cudart libcudart.so.12 SOURCES discover/fake_cudart.c DEFINES FLAVOUR=12
    LINK -Wl,-soname,libcudart.so.12 -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/discover/fake_cudart.map)
ltn_fixture_lib(fixture_cudart_other libcudart-deadbeef.so.11.0 SOURCES discover/fake_cudart.c DEFINES FLAVOUR=11
    LINK -Wl,-soname,libcudart-deadbeef.so.11.0
         -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/discover/fake_cudart.map)
ltn_fixture_lib(fixture_cuda libcuda.so.1 SOURCES discover/fake_cuda.c LINK -Wl,-soname,libcuda.so.1)
ltn_fixture_lib(fixture_nccl libnccl.so.2 SOURCES discover/fake_nccl.c LINK -Wl,-soname,libnccl.so.2)
ltn_fixture_lib(fixture_nvml_old nvml-old.so SOURCES discover/fake_nvml.c DEFINES NVML_INIT_RESULT=0)
ltn_fixture_lib(fixture_nvml_nodriver nvml-nodriver.so SOURCES discover/fake_nvml.c DEFINES NVML_INIT_RESULT=9)
# A program with the marks of a stripped runtime, which only x86-64 has.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    enable_language(ASM)
    ltn_fixture_lib(fixture_stripped stripped.so SOURCES discover/fake_stripped.S LINK -Wl,-s)
    set_target_properties(fixture_stripped PROPERTIES LINKER_LANGUAGE C)
endif()
add_executable(discover_child discover/child.c)
add_executable(discover_child_embeds discover/child.c)
target_compile_definitions(discover_child_embeds PRIVATE EMBEDS)
foreach(child discover_child discover_child_embeds)
    target_compile_definitions(${child} PRIVATE _GNU_SOURCE)
    target_link_libraries(${child} PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(${child} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${fixtures})
endforeach()

# ltn_discover_test(NAME LIBS...)
function(ltn_discover_test name)
    ltn_test(${name} ${name}.c)
    target_link_libraries(${name} PRIVATE ${ARGN})
    target_compile_definitions(${name} PRIVATE FIXTURES="${fixtures}")
    add_dependencies(${name} fixture_cudart fixture_cudart_other fixture_cuda fixture_nccl discover_child
        discover_child_embeds fixture_nvml_old fixture_nvml_nodriver)
endfunction()

if(TARGET fixture_stripped)
    ltn_discover_test(test_discover_cudart_code ltn_discover ltn_ops)
    add_dependencies(test_discover_cudart_code fixture_stripped)
endif()
ltn_discover_test(test_discover_elf ltn_discover)
ltn_discover_test(test_discover_kernel ltn_discover)
ltn_discover_test(test_discover_libs ltn_discover)
ltn_discover_test(test_discover_maps ltn_discover)
ltn_discover_test(test_discover_proc ltn_discover)
ltn_discover_test(test_discover_rank ltn_discover)
ltn_discover_test(test_discover_runs ltn_discover)
ltn_discover_test(test_discover_scan ltn_discover)
ltn_discover_test(test_gpu_nvml ltn_gpu)
ltn_discover_test(test_gpu_sampler ltn_gpu)
ltn_discover_test(test_probe_site ltn_probe_site ltn_discover)
ltn_discover_test(test_probe_tracepoint ltn_probe_tracepoint)
# The simulated NVML, where it is built; the test says loudly when it had to do without.
set_tests_properties(test_gpu_nvml PROPERTIES ENVIRONMENT
    "LTN_TEST_NVML_DIR=${CMAKE_BINARY_DIR}/simgpu")
