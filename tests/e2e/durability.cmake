# SPDX-License-Identifier: Apache-2.0
# A library that is loaded before all others: its clock and its disk do what a test says.
add_library(durability_shim SHARED durability_shim.c)
target_link_libraries(durability_shim PRIVATE ltn_flags ${CMAKE_DL_LIBS})
set_target_properties(durability_shim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
