# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. DESTDIR and --prefix are honoured, also in what the units say.
include(GNUInstallDirs)

install(TARGETS lanterne lanterne-collector RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY LICENSES docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY deploy/helm/lanterne DESTINATION ${CMAKE_INSTALL_DATADIR}/lanterne/helm)
if(EXISTS ${CMAKE_SOURCE_DIR}/deploy/grafana)
    install(DIRECTORY deploy/grafana DESTINATION ${CMAKE_INSTALL_DATADIR}/lanterne)
endif()

# Units name absolute paths, and the prefix is only known for sure when installing.
install(CODE "
    set(LTN_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
    set(LTN_DOCDIR \"${CMAKE_INSTALL_DOCDIR}\")
    foreach(name LTN_BINDIR LTN_DOCDIR)
        if(NOT IS_ABSOLUTE \"\${\${name}}\")
            get_filename_component(\${name} \"\${CMAKE_INSTALL_PREFIX}/\${\${name}}\" ABSOLUTE)
        endif()
    endforeach()
    foreach(unit lanterne lanterne-collector)
        configure_file(\"${CMAKE_SOURCE_DIR}/deploy/systemd/\${unit}.service.in\"
                       \"${CMAKE_BINARY_DIR}/units/\${unit}.service\" @ONLY)
        file(INSTALL \"${CMAKE_BINARY_DIR}/units/\${unit}.service\"
             DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\"
             PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    endforeach()")
