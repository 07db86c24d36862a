# Precompiled headers: the standard library, Abseil and GoogleTest take 2 to 4 seconds of every translation
# unit without them, 0.2 with. They hold nothing of ours, so that editing our headers never rebuilds them.
# -DFURROW_PCH=OFF turns them off; headers must compile alone either way (tests/lint checks it).
option(FURROW_PCH "Precompile the headers of the standard library, Abseil and GoogleTest" ON)

set(furrow_pch_headers
  <algorithm> <array> <atomic> <bit> <chrono> <coroutine> <cstddef> <cstdint> <cstdio> <cstdlib> <cstring>
  <deque> <functional> <limits> <map> <memory> <optional> <ostream> <set> <span> <sstream> <string>
  <string_view> <thread> <tuple> <type_traits> <unordered_map> <utility> <variant> <vector>
  <absl/cleanup/cleanup.h> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/string_view.h> <absl/synchronization/mutex.h> <absl/types/span.h>)

if(NOT CMAKE_GENERATOR STREQUAL "Ninja")
  set(FURROW_PCH OFF)  # furrow_use_pch() relies on the compiler running in the top build directory
endif()

if(FURROW_PCH)
  # Without a time stamp in it the file is the same after each build, and ccache can work with it.
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  set(furrow_pch_source ${CMAKE_BINARY_DIR}/furrow_pch.cc)
  set(furrow_pch_main ${CMAKE_BINARY_DIR}/furrow_pch_main.cc)
  file(CONFIGURE OUTPUT ${furrow_pch_source} CONTENT "// Carries the precompiled headers.\n")
  file(CONFIGURE OUTPUT ${furrow_pch_main} CONTENT "int main() { return 0; }\n")

  add_library(furrow_pch STATIC ${furrow_pch_source})
  target_link_libraries(furrow_pch PRIVATE furrow_flags)
  target_precompile_headers(furrow_pch PRIVATE ${furrow_pch_headers})
  set(furrow_pch_owners furrow_pch)

  if(FURROW_BUILD_TESTS)
    # An executable: it compiles as the tests do, with -fPIE where libraries have -fPIC.
    add_executable(furrow_pch_test ${furrow_pch_main})
    target_link_libraries(furrow_pch_test PRIVATE furrow_flags GTest::gmock GTest::gtest)
    target_precompile_headers(furrow_pch_test PRIVATE ${furrow_pch_headers} <gmock/gmock.h> <gtest/gtest.h>)
    list(APPEND furrow_pch_owners furrow_pch_test)
  endif()

  # A precompiled header holds the path of its build directory. For ccache a hash of what it was made of
  # stands for it, so that builds of the same sources in several directories share their objects.
  set(furrow_pch_sums)
  foreach(owner IN LISTS furrow_pch_owners)
    set(header ${CMAKE_BINARY_DIR}/CMakeFiles/${owner}.dir/cmake_pch.hxx)
    add_custom_command(OUTPUT ${header}.pch.sum DEPENDS ${header}.pch VERBATIM
      COMMAND sh -c
        "${CMAKE_CXX_COMPILER} -w -std=c++20 -x c++ -E -P ${header} | sha256sum > ${header}.pch.sum")
    list(APPEND furrow_pch_sums ${header}.pch.sum)
  endforeach()
  add_custom_target(furrow_pch_sums DEPENDS ${furrow_pch_sums})
endif()

# Lets `target` use the precompiled headers of `owner` (furrow_pch for libraries, furrow_pch_test for
# tests). The path is relative to the top build directory, so that command lines do not differ between build
# directories.
function(furrow_use_pch target owner)
  if(FURROW_PCH)
    target_compile_options(${target} PRIVATE "SHELL:-include-pch CMakeFiles/${owner}.dir/cmake_pch.hxx.pch")
    add_dependencies(${target} furrow_pch_sums)
  endif()
endfunction()
