# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_discover_elf fuzz_discover_elf.c)
target_link_libraries(fuzz_discover_elf PRIVATE ltn_discover ltn_probe_site)
ltn_fuzz_target(fuzz_discover_maps fuzz_discover_maps.c)
target_link_libraries(fuzz_discover_maps PRIVATE ltn_discover)
if(LTN_FUZZ)
    target_compile_options(ltn_discover PRIVATE -fsanitize=fuzzer-no-link)
endif()
