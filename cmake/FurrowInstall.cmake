# cmake --install: libraries and headers with find_package(Furrow) and pkg-config (component "development"),
# the executables (component "runtime").
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# In link order, the users first.
set(furrow_installed client index txn cluster cluster_proto rdma_shm rdma_verbs storage rdma base)
set(furrow_installed_targets)
set(furrow_pc_libs)
foreach(name IN LISTS furrow_installed)
  list(APPEND furrow_installed_targets furrow_${name})
  string(APPEND furrow_pc_libs " -lfurrow_${name}")
endforeach()
target_compile_features(furrow_base PUBLIC cxx_std_20)

install(TARGETS ${furrow_installed_targets} EXPORT FurrowTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
foreach(folder base rdma storage cluster txn index client)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/furrow
    COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*test*" EXCLUDE PATTERN "*contract*" EXCLUDE
    PATTERN "sim" EXCLUDE PATTERN "verbs" EXCLUDE)
endforeach()
install(EXPORT FurrowTargets NAMESPACE furrow:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Furrow
  COMPONENT development)

configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/cmake/FurrowConfig.cmake.in ${CMAKE_BINARY_DIR}/FurrowConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Furrow)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/FurrowConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/FurrowConfig.cmake ${CMAKE_BINARY_DIR}/FurrowConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Furrow COMPONENT development)
# It finds the prefix from where it lies.
file(RELATIVE_PATH furrow_pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_SOURCE_DIR}/cmake/furrow.pc.in ${CMAKE_BINARY_DIR}/furrow.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/furrow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

install(TARGETS furrow RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
if(TARGET furrow-bench)
  install(TARGETS furrow-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endif()
