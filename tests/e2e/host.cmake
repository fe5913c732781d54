# SPDX-License-Identifier: Apache-2.0
# Traced programs for test_host_*.py.
capture_program(host_flood host_flood.c)
target_link_libraries(host_flood PRIVATE simgpu_cudart simgpu_cuda)
