# SPDX-License-Identifier: Apache-2.0
if(TARGET ltn_access)
    ltn_test(test_access_tokens test_access_tokens.c)
    target_link_libraries(test_access_tokens PRIVATE ltn_access)
endif()
