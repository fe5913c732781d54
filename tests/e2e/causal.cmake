# SPDX-License-Identifier: Apache-2.0
# A rank of a job of one whose steps change after a while, for test_incidents.py.
capture_program(causal_target causal_target.c)
target_link_libraries(causal_target PRIVATE simgpu_cudart simgpu_nccl simgpu_cuda)
