# Build options, compiler flags and the third-party packages of the whole tree.
option(FURROW_BUILD_TESTS "Build unit, cluster and simulation tests" ON)
option(FURROW_MUTATIONS "Compile the switches that turn single protocol steps off (tests only)" OFF)
set(FURROW_SANITIZER "" CACHE STRING "address, thread or empty")

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "Furrow builds with clang 16 or newer (found ${CMAKE_CXX_COMPILER_ID} "
    "${CMAKE_CXX_COMPILER_VERSION}). Run deploy/packages and use a preset: cmake --preset release")
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(furrow_flags INTERFACE)
target_compile_options(furrow_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wthread-safety
  -Werror -Wno-unused-parameter -Wno-deprecated-declarations -Wno-deprecated-builtins -fno-omit-frame-pointer
  -mcx16 -pthread)
if(FURROW_MUTATIONS)
  target_compile_definitions(furrow_flags INTERFACE FURROW_MUTATIONS=1)
endif()
if(FURROW_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-sanitize=vptr)
  add_link_options(-fsanitize=address,undefined)
elseif(FURROW_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()

find_program(FURROW_CCACHE ccache)
if(FURROW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
    ${FURROW_CCACHE})
endif()
find_program(FURROW_LLD ld.lld-19)
if(FURROW_LLD)
  add_link_options(--ld-path=${FURROW_LLD})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
if(FURROW_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
