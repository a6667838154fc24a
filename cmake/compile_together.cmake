# SPDX-License-Identifier: Apache-2.0
# Compiles up to CKPTFS_TOGETHER files of each target as one, in groups of files of which none
# knows a local name of another (tests/lint/local_names.py).
function(ckptfs_compile_together directory)
    get_property(inner DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
    foreach(each ${inner})
        ckptfs_compile_together(${each})
    endforeach()
    get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
        get_target_property(type ${target} TYPE)
        if(NOT type MATCHES "^(STATIC_LIBRARY|EXECUTABLE)$")
            continue()
        endif()
        get_target_property(sources ${target} SOURCES)
        execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/lint/local_names.py
                                ${CKPTFS_TOGETHER} ${sources}
                        WORKING_DIRECTORY ${directory} OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
        string(REGEX MATCHALL "[^\n]+" lines "${lines}")
        foreach(line ${lines})
            string(REGEX MATCH "^(.*):([0-9]+)$" line "${line}")
            get_filename_component(source ${CMAKE_MATCH_1} ABSOLUTE BASE_DIR ${directory})
            set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${CMAKE_MATCH_2})
        endforeach()
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    endforeach()
endfunction()
