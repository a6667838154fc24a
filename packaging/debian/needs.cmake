# SPDX-License-Identifier: Apache-2.0
# Read by cpack before it packs.
if(CPACK_GENERATOR STREQUAL "DEB")
  foreach(program file dpkg-shlibdeps)
    find_program(found_${program} ${program})
    if(NOT found_${program})
      message(FATAL_ERROR "${program} is missing: apt-get install file dpkg-dev")
    endif()
  endforeach()
endif()
