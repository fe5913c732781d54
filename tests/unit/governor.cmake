# SPDX-License-Identifier: Apache-2.0
ltn_test(test_governor_decide test_governor_decide.c)
target_link_libraries(test_governor_decide PRIVATE ltn_governor)
ltn_test(test_capture_thinning test_capture_thinning.c)
target_link_libraries(test_capture_thinning PRIVATE ltn_capture)
