# SPDX-License-Identifier: Apache-2.0
foreach(target fuzz_http_h1 fuzz_http_h2 fuzz_grpc_frame)
    ltn_fuzz_target(${target} ${target}.c ltn_http)
endforeach()
