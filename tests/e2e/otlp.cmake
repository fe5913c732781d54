# SPDX-License-Identifier: Apache-2.0
add_executable(otlp_reader otlp_reader.c)
target_link_libraries(otlp_reader PRIVATE ltn_flags ltn_otlp)
list(APPEND LTN_E2E_ALONGSIDE e2e_otlp_oracle)
