# SPDX-License-Identifier: Apache-2.0
foreach(target fuzz_http_h1 fuzz_http_h2 fuzz_http_server fuzz_grpc_frame fuzz_inflate)
    ltn_fuzz_target(${target} ${target}.c ltn_http)
endforeach()
