# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_python fuzz_python.c ltn_python)
