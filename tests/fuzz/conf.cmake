# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_conf_yaml fuzz_conf_yaml.c ltn_conf)
