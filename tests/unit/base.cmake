# SPDX-License-Identifier: Apache-2.0
# One block per module, in alphabetical order.

foreach(topic arena buf chan clock err file json log map text utf8)
    ltn_test(test_base_${topic} test_base_${topic}.c)
    target_link_libraries(test_base_${topic} PRIVATE ltn_base)
endforeach()
target_link_libraries(test_base_json PRIVATE jansson)

# Every allocation of the library is made to fail in turn.
ltn_test(test_base_failmalloc test_base_failmalloc.c)
target_link_libraries(test_base_failmalloc PRIVATE ltn_base)
target_link_options(test_base_failmalloc PRIVATE
    -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=free)
