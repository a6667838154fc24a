# SPDX-License-Identifier: Apache-2.0
# Takes away what `cmake --install` puts there: cmake -D BUILD=DIRECTORY -P uninstall.cmake, below $DESTDIR if it is set.
# The list is made by installing once more, into the build directory: install_manifest.txt is that of the user who installed
# last, and that is the package once one has been built.
set(root "$ENV{DESTDIR}")
set(staging "${BUILD}/uninstall")
file(REMOVE_RECURSE "${staging}")
set(ENV{DESTDIR} "${staging}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE paths LIST_DIRECTORIES false RELATIVE "${staging}" "${staging}/*")
foreach(path IN LISTS paths)
    set(installed "${root}/${path}")
    if(IS_SYMLINK "${staging}/${path}")
        if(NOT IS_SYMLINK "${installed}")
            continue()
        endif()
        # It is the package's, once that is installed.
        file(READ_SYMLINK "${staging}/${path}" ours)
        file(READ_SYMLINK "${installed}" there)
        if(NOT ours STREQUAL there)
            continue()
        endif()
    elseif(NOT EXISTS "${installed}")
        continue()
    endif()
    message(STATUS "Removing: ${installed}")
    file(REMOVE "${installed}")
endforeach()
file(REMOVE_RECURSE "${staging}")
