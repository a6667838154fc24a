# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, and the compiler cache where there is one.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(THREADS_PREFER_PTHREAD_FLAG ON)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # What was compiled in one checkout serves all others of this machine.
    set(CMAKE_C_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()

add_library(ckptfs_warnings INTERFACE)
target_compile_options(ckptfs_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    # What base/mutex.h says about locks; g++ does not know it.
    target_compile_options(ckptfs_warnings INTERFACE -Wthread-safety)
endif()

if(CKPTFS_FUZZ)
    set(CKPTFS_SANITIZE address,undefined)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CKPTFS_SANITIZE)
    add_compile_options(-fsanitize=${CKPTFS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${CKPTFS_SANITIZE})
endif()
