# SPDX-License-Identifier: Apache-2.0
# ltn_bpf_object(NAME SOURCE): compiles SOURCE for the BPF target, strips its debug sections and makes the library
# target NAME_skel, whose include folder holds NAME.skel.h.
find_program(LTN_BPF_CLANG NAMES clang clang-14 REQUIRED)
find_program(LTN_BPF_STRIP NAMES llvm-strip llvm-strip-14 REQUIRED)
find_program(LTN_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(LTN_BPF_ARCH arm64)
else()
    set(LTN_BPF_ARCH x86)
endif()

function(ltn_bpf_object name source)
    set(dir ${CMAKE_CURRENT_BINARY_DIR}/${name})
    set(object ${dir}/${name}.bpf.o)
    set(skeleton ${dir}/${name}.skel.h)
    file(MAKE_DIRECTORY ${dir})
    add_custom_command(
        OUTPUT ${object}
        COMMAND ${LTN_BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -std=gnu17 -Wall -Wextra -Werror -Wno-visibility
                -Wno-unused-parameter -D__TARGET_ARCH_${LTN_BPF_ARCH} -I${CMAKE_SOURCE_DIR} ${ARGN}
                -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -MMD -MF ${object}.d -MT ${object}
                -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
        COMMAND ${LTN_BPF_STRIP} -g ${object}
        DEPENDS ${source}
        DEPFILE ${object}.d
        COMMENT "BPF ${name}"
        VERBATIM)
    add_custom_command(
        OUTPUT ${skeleton}
        COMMAND sh -c "\"$1\" gen skeleton \"$2\" name \"$3\" > \"$4.tmp\" && mv \"$4.tmp\" \"$4\"" sh
                ${LTN_BPFTOOL} ${object} ${name} ${skeleton}
        DEPENDS ${object}
        COMMENT "Skeleton ${name}"
        VERBATIM)
    add_custom_target(${name}_skeleton DEPENDS ${skeleton})
    add_library(${name}_skel INTERFACE)
    target_include_directories(${name}_skel SYSTEM INTERFACE ${dir})
    add_dependencies(${name}_skel ${name}_skeleton)
endfunction()
