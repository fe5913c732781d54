# SPDX-License-Identifier: Apache-2.0
if(TARGET ltn_prom)
    ltn_fuzz_target(fuzz_prom_accept fuzz_prom_accept.c ltn_prom)
    ltn_fuzz_target(fuzz_prom_hist fuzz_prom_hist.c ltn_prom ltn_stats)
endif()
