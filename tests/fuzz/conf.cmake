# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_conf_yaml fuzz_conf_yaml.c)
target_link_libraries(fuzz_conf_yaml PRIVATE ltn_conf)
