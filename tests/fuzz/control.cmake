# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_control fuzz_control.c ltn_control ltn_otlp)
