# SPDX-License-Identifier: Apache-2.0
if(TARGET ltn_ingest)
    ltn_fuzz_target(fuzz_ingest_metrics fuzz_ingest_metrics.c ltn_ingest ltn_otlp ltn_prom)
    ltn_fuzz_target(fuzz_prom_series fuzz_prom_series.c ltn_prom)
endif()
