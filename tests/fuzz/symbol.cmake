# SPDX-License-Identifier: Apache-2.0
ltn_fuzz_target(fuzz_symbol_table fuzz_symbol_table.c ltn_symbol ltn_discover)
