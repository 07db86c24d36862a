# Gives an executable the run-time options of its sanitizer, if it has one.
function(furrow_sanitizer_options target)
  if(FURROW_SANITIZER)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/sanitizer_options.cc)
  endif()
endfunction()

# furrow_library(NAME SOURCES ... DEPS ... PRIVATE_DEPS ...): the library of one folder, alias furrow::NAME.
function(furrow_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(furrow_${name} STATIC ${ARG_SOURCES})
  add_library(furrow::${name} ALIAS furrow_${name})
  set_target_properties(furrow_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(furrow_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>
    $<INSTALL_INTERFACE:include/furrow>)
  target_link_libraries(furrow_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS}
    $<BUILD_INTERFACE:furrow_flags>)
  furrow_use_pch(furrow_${name} furrow_pch)
endfunction()

# furrow_note_test(TIER NAME KIND ...): a line of furrow_tests.txt, by which tests/select_tests.py tells what a test
# needs before anything is built.
function(furrow_note_test)
  list(JOIN ARGN " " line)
  set_property(GLOBAL APPEND_STRING PROPERTY furrow_tests "${line}\n")
endfunction()
function(furrow_write_tests)
  get_property(lines GLOBAL PROPERTY furrow_tests)
  file(WRITE ${CMAKE_BINARY_DIR}/furrow_tests.txt "${lines}")
endfunction()

# What the sanitizers run: unit and sim tests.
add_custom_target(furrow_sanitized)

# furrow_test(NAME SOURCES ... DEPS ... [TIMEOUT s] [LABELS tier]): one test binary; ctest runs each of its
# cases by itself. The label is the tier in tests/run: unit (the default), sim or cluster.
function(furrow_test name)
  if(NOT FURROW_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  furrow_sanitizer_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main furrow_flags)
  furrow_use_pch(${name} furrow_pch_test)
  if(NOT ARG_LABELS STREQUAL "cluster")
    add_dependencies(furrow_sanitized ${name})
  endif()
  set(paths)
  foreach(source IN LISTS ARG_SOURCES)
    get_filename_component(path ${source} ABSOLUTE)
    list(APPEND paths ${path})
  endforeach()
  furrow_note_test(${ARG_LABELS} ${name} gtest ${paths})
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
