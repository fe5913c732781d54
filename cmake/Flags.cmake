# SPDX-License-Identifier: Apache-2.0
# One interface library carries the flags of every user-space target: ltn_flags.
add_library(ltn_flags INTERFACE)
target_compile_definitions(ltn_flags INTERFACE _GNU_SOURCE LTN_VERSION="${PROJECT_VERSION}")
target_compile_options(ltn_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wundef
    -Wcast-qual -Wdouble-promotion -Wimplicit-fallthrough -fno-common -fstack-protector-strong
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(ltn_flags INTERFACE -fstack-clash-protection -fcf-protection)
endif()
if(LTN_WERROR)
    target_compile_options(ltn_flags INTERFACE -Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(ltn_flags INTERFACE -D_FORTIFY_SOURCE=2)
    target_link_options(ltn_flags INTERFACE -Wl,-z,relro,-z,now)
endif()

if(LTN_SANITIZE STREQUAL "address")
    set(LTN_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(LTN_SANITIZE STREQUAL "thread")
    set(LTN_SANITIZE_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT LTN_SANITIZE STREQUAL "")
    message(FATAL_ERROR "LTN_SANITIZE must be empty, address or thread, not '${LTN_SANITIZE}'")
endif()
target_compile_options(ltn_flags INTERFACE ${LTN_SANITIZE_FLAGS})
target_link_options(ltn_flags INTERFACE ${LTN_SANITIZE_FLAGS})

# ltn_library(NAME SOURCES... ) followed by target_link_libraries for what it stands on.
# Headers are included as "<room>/<file>.h" from the folder above the room.
function(ltn_library name)
    add_library(${name} STATIC ${ARGN})
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/..)
    target_link_libraries(${name} PRIVATE ltn_flags)
endfunction()

# ltn_test(NAME SOURCES...): a cmocka program registered with CTest under the label "unit".
function(ltn_test name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE ltn_flags cmocka)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)
endfunction()
