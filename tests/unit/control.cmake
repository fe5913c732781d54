# SPDX-License-Identifier: Apache-2.0
if(TARGET ltn_proto)
    ltn_test(test_control_message test_control_message.c)
    target_link_libraries(test_control_message PRIVATE ltn_control ltn_proto)
endif()
ltn_test(test_push_answer test_push_answer.c)
target_link_libraries(test_push_answer PRIVATE ltn_push ltn_control ltn_record)
