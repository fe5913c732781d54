# SPDX-License-Identifier: Apache-2.0
if(TARGET ltn_discover)
    include(${CMAKE_CURRENT_SOURCE_DIR}/discover.cmake)
endif()
