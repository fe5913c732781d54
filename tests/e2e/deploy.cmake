# SPDX-License-Identifier: Apache-2.0
# Builds images when LTN_TEST_IMAGES is set.
ltn_e2e_test(e2e_deploy_image test_deploy_image.py)
set_tests_properties(e2e_deploy_image PROPERTIES TIMEOUT 1200)
