# SPDX-License-Identifier: Apache-2.0
foreach(name test_symbol_demangle test_symbol_modules test_symbol_resolve test_symbol_stack test_symbol_table)
    ltn_test(${name} ${name}.c)
    target_link_libraries(${name} PRIVATE ltn_symbol ${CMAKE_DL_LIBS})
endforeach()
# Its own functions are looked up, also those that nothing exports.
target_compile_options(test_symbol_resolve PRIVATE -fno-omit-frame-pointer)
